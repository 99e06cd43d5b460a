//! `redbolt status --watch`: repeats the look until it is interrupted.

use std::io;
use std::time::Duration;

use crate::args::{Global, StatusArgs};
use crate::clock::time;
use crate::exit::Failure;
use crate::inspect::{SeenLock, holder};
use crate::look;
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
    let mut last: Option<SeenLock> = None;
    loop {
        let seen = holder(&client, &args.key.0)?;
        if global.json {
            say(seen.json(quorum))?;
        } else if let Some(picture) = &mut picture {
            let text = seen.text(paint, quorum, width());
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.push(paint.dim(format!("{}, each {}; Ctrl-C ends", time(), short(interval))));
            picture.draw(lines)?;
        } else if last.as_ref().is_none_or(|last| seen.differs(last)) {
            say(format_args!("{}  {}", time(), seen.sentence(paint, quorum)))?;
        }
        last = Some(seen);
        if signals.wait(interval).is_some() {
            return Ok(());
        }
    }
}
