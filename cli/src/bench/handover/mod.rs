//! `bench --mode handover`: processes that all want one key again at once, and how fast it goes from
//! one to the next.

pub(crate) mod client;
mod crew;
mod figures;
mod report;
mod said;

use std::sync::mpsc::channel;
use std::time::Duration;

use redbolt::now;

use super::compare::Saved;
use super::drawing::{Drawing, shares};
use super::limit::Limit;
use super::setup::{Load, Setup, hold, nodes};
use crate::args::{BenchArgs, Global};
use crate::exit::Failure;
use crate::plot::{Line, Plot, Scale};
use crate::progress::Progress;
use crate::signals::{ENDING, Signals};
use crate::way::Way;
use client::Go;
use crew::{Crew, Event};
use figures::Figures;
use report::Report;
use said::Said;

const CLIENTS: u16 = 2;

/// Time between two looks at the progress bar.
const STEP: Duration = Duration::from_millis(100);

pub(super) fn run(global: &Global, args: &BenchArgs) -> Result<(), Failure> {
    let limit = Limit::of(args)?;
    let clients = args.clients.unwrap_or(CLIENTS);
    let load = Load::Clients { count: clients, hold: hold(args)? };
    let saved = args.compare.as_deref().map(Saved::read).transpose()?;
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;
    let (sender, events) = channel();
    let woken = sender.clone();
    let signals = Signals::watch(&ENDING, move || drop(woken.send(Event::Signal)))?;
    let (config, embedded) = nodes(global)?;
    let setup = Setup::new(global, args, &config, load, embedded.is_some())?;
    if let Some(saved) = &saved {
        saved.check(&setup)?;
    }
    setup.tell();
    let urls = embedded.as_ref().map(|nodes| nodes.urls().join(","));
    let mut crew = Crew::new((sender, events), signals, urls, global.json);
    let figures = measure(&mut crew, clients, limit)?;
    drop(crew);
    if let Some(drawing) = &drawing {
        drawing.save(&setup, &[plot(&figures)])?;
    }
    let report = Report {
        setup: &setup,
        figures: &figures,
        saved: saved.as_ref(),
        drawing: drawing.as_ref(),
    };
    report.print(global.json)
}

fn measure(crew: &mut Crew, clients: u16, limit: Limit) -> Result<Figures, Failure> {
    let progress = Progress::bar();
    // The first one measures the round trip before there is anything beside it.
    crew.hire()?;
    let round_trip = crew.ready()?;
    for _ in 1..clients {
        crew.hire()?;
    }
    for _ in 1..clients {
        crew.ready()?;
    }
    let start = now();
    let end = start + limit.length();
    crew.go(&Go { end, turns: limit.cycles().div_ceil(clients.into()) })?;
    let mut stopped_at = None;
    let mut turns = vec![Vec::new(); clients.into()];
    let (mut failures, mut why) = (0, None);
    while !crew.are_done() {
        let Some((client, said)) = crew.listen(STEP)? else {
            progress.show(limit.permille_of_time(start));
            continue;
        };
        // Its time is up, or it has had its share of the turns: so the others end too.
        stopped_at.get_or_insert_with(|| now().min(end));
        crew.close();
        match (said, turns.get_mut(client)) {
            (Said::Turn(turn), Some(turns)) => turns.push(turn),
            (Said::Failed(count, text), _) => {
                failures += count;
                why = Some(text);
            }
            _ => {}
        }
    }
    let elapsed = stopped_at.unwrap_or(end).saturating_since(start);
    let figures = Figures::of(&turns, elapsed)?;
    Ok(Figures { round_trip, failures, why, ..figures })
}

fn plot(figures: &Figures) -> Plot {
    let line = |name: &str, points| Line { name: name.to_owned(), points };
    let ways = Way::ALL.iter().zip(&figures.by);
    let mut lines = vec![line("all", shares(&figures.handovers))];
    lines.extend(
        ways.filter(|(_, (_, times))| !times.is_empty())
            .map(|(way, (_, times))| line(&format!("by {}", way.name()), shares(times))),
    );
    Plot {
        title: "Share of hand-overs done within a time",
        x: "microseconds",
        y: "percent",
        x_scale: Scale::Log,
        y_scale: Scale::Zero,
        lines,
    }
}
