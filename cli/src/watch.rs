//! `redbolt status --watch`: repeats the look until it is interrupted.

use std::io;
use std::time::Duration;

use crate::args::{Global, StatusArgs};
use crate::clock::time;
use crate::exit::Failure;
use crate::inspect::{SeenLock, holder};
use crate::look;
use crate::names::names;
use crate::output::{Paint, say, short};
use crate::signals::{ENDING, Signals};
use crate::terminal::{Picture, is_live, width};

const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let interval = look::interval(args.interval.unwrap_or(INTERVAL))?;
    let signals = Signals::watch(&ENDING, || {})?;
    let (client, _) = look::client_until(global, Some(&signals))?;
    let quorum = client.quorum();
    let mut picture = is_live(&io::stdout()).then(Picture::default);
    let paint = Paint::stdout();
    let keys = names(&args.keys);
    let mut last: Vec<SeenLock> = Vec::new();
    loop {
        let mut lines = Vec::new();
        let all: Result<Vec<_>, _> = keys.iter().map(|key| holder(&client, key)).collect();
        let all = all?;
        for (place, seen) in all.iter().enumerate() {
            if global.json {
                say(seen.json(quorum))?;
            } else if picture.is_some() {
                lines.extend(seen.text(paint, quorum, width()).lines().map(str::to_owned));
            } else if last.get(place).is_none_or(|last| seen.differs(last)) {
                say(format_args!("{}  {}", time(), seen.sentence(paint, quorum)))?;
            }
        }
        if let Some(picture) = &mut picture {
            lines.push(paint.dim(format!("{}, each {}; Ctrl-C ends", time(), short(interval))));
            picture.draw(lines)?;
        }
        last = all;
        if signals.wait(interval).is_some() {
            return Ok(());
        }
    }
}
