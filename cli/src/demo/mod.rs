//! `redbolt demo`: workers sell a stock under locks while nodes fail.

mod faults;
mod shop;
mod view;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use redbolt::Instant;
use redbolt::inspect::{NodeHealth, NodeState};
use redbolt::{Client, Config, ConnectError, Retry, now};
use redbolt_embedded::Nodes;
use serde_json::json;

use crate::args::{DemoArgs, Global};
use crate::exit::{Failure, OVERSOLD};
use crate::output::{Paint, say, short};
use crate::remedy::told;
use crate::signals::{ENDING, Signals};
use crate::times::{at, percentiles};
use crate::{look, settings};
use faults::Faults;
use shop::Shop;
use view::{Scene, View};
use worker::Waves;

/// The longest TTL with the embedded nodes; a restarted node does not vote for this long.
const MAX_TTL: Duration = Duration::from_secs(2);

/// The time in which the stock sells if the locks keep up with the customers.
const SALE_LENGTH: Duration = Duration::from_secs(10);

/// The longest time between two waves of customers.
const WAVE_INTERVAL_MAX: Duration = Duration::from_millis(40);

/// The shop closes after this, sold out or not.
const TIME_LIMIT: Duration = Duration::from_millis(18_500);

/// Time between two redraws.
const FRAME: Duration = Duration::from_millis(100);

pub(crate) fn run(global: &Global, args: &DemoArgs) -> Result<(), Failure> {
    let signals = Signals::watch(&ENDING, || {})?;
    let mut demo = Demo::open(global, args, &signals)?;
    let sellers = demo.hire(args)?;
    let mut result = demo.watch(&signals, &sellers);
    // The demo joins its sellers in any case, so that they release their locks.
    demo.shop.close();
    for seller in sellers {
        let ended = seller.join().map(|sold| sold.map_err(Failure::from));
        let ended = ended.unwrap_or_else(|_| Err(Failure::system("a worker has failed")));
        result = result.and(ended);
    }
    let elapsed = now().saturating_since(demo.start);
    demo.draw(elapsed)?;
    drop(demo.view);
    result?;
    summary(&demo.shop, elapsed, args, global.json)
}

struct Demo {
    shop: Arc<Shop>,
    config: Option<Config>,
    /// The embedded nodes, which get the faults.
    nodes: Option<Nodes>,
    faults: Faults,
    /// A client that only watches the nodes.
    observer: Option<Client>,
    seen: Vec<NodeHealth>,
    view: View,
    title: String,
    start: Instant,
    /// The total sold at each redraw of the last second.
    pace: VecDeque<(Duration, u32)>,
}

impl Demo {
    fn open(global: &Global, args: &DemoArgs, signals: &Signals) -> Result<Self, Failure> {
        let (mut config, mut nodes) = (None, None);
        let place = match global.nodes.clone() {
            // Without locks the demo asks no node.
            _ if args.no_lock => "no locks".to_owned(),
            Some(named) => {
                let given = settings::config_of(global, &named)?;
                let place = format!("{} given nodes, no faults", given.nodes().len());
                config = Some(given);
                place
            }
            None => {
                let embedded = Nodes::start(5)?;
                let own = settings::config_of(global, &embedded.urls().join(","))?;
                config = Some(own.max_ttl(global.max_ttl.unwrap_or(MAX_TTL)));
                nodes = Some(embedded);
                "five embedded nodes".to_owned()
            }
        };
        let retry = Retry::every(Duration::from_millis(1), Duration::from_millis(2));
        let config = config.map(|config| config.retry(retry.timeout(Duration::from_secs(3))));
        let connected = |config| look::connected(global, config, signals);
        let observer = config.clone().map(connected).transpose()?;
        let node_count = config.as_ref().map_or(0, |config| config.nodes().len());
        // Fewer shelves than workers, so that some workers compete in each wave.
        let shelf_count = (args.workers * 3 / 4).clamp(1, 64);
        let mut demo = Self {
            shop: Arc::new(Shop::open(args.stock, shelf_count, node_count)?),
            config,
            nodes,
            faults: Faults::default(),
            seen: observer.as_ref().map(|client| client.nodes().wait()).unwrap_or_default(),
            observer,
            view: View::new(global.json),
            title: match args.workers {
                1 => format!("redbolt demo: 1 worker sells {} pieces, {place}", args.stock),
                more => format!("redbolt demo: {more} workers sell {} pieces, {place}", args.stock),
            },
            start: now(),
            pace: VecDeque::new(),
        };
        demo.view.begin(&demo.title)?;
        Ok(demo)
    }

    /// Starts the workers.
    fn hire(&self, args: &DemoArgs) -> Result<Vec<JoinHandle<Result<(), ConnectError>>>, Failure> {
        let wave_count = args.stock.div_ceil(args.workers);
        let mut interval = (SALE_LENGTH / wave_count).min(WAVE_INTERVAL_MAX);
        if args.no_lock {
            // Without locks the workers sell a piece several times, so the stock takes more waves.
            interval /= 2;
        }
        // The workers connect meanwhile, and begin together.
        let waves = Waves { start: self.start + Duration::from_millis(100), interval };
        (0..args.workers)
            .map(|worker| {
                let (shop, config) = (Arc::clone(&self.shop), self.config.clone());
                let worker = usize::try_from(worker).unwrap_or(0);
                Builder::new()
                    .name(format!("worker-{worker}"))
                    .spawn(move || worker::work(&shop, waves, worker, config))
                    .map_err(Failure::from)
            })
            .collect()
    }

    /// Shows the sale and makes nodes fail, until all workers are done or the time is over.
    fn watch<T>(&mut self, signals: &Signals, sellers: &[JoinHandle<T>]) -> Result<(), Failure> {
        loop {
            let elapsed = now().saturating_since(self.start);
            self.look(elapsed)?;
            if let Some(nodes) = &self.nodes
                && let Some(text) =
                    self.faults.act(nodes, &self.seen, self.shop.sold(), self.shop.stock)?
            {
                self.view.event(elapsed, &text)?;
            }
            // `look` reports that a node votes again.
            for notice in self.shop.take_notices().iter().filter(|notice| !notice.is_well()) {
                self.view.warn(elapsed, &told(notice));
            }
            self.draw(elapsed)?;
            if elapsed >= TIME_LIMIT || sellers.iter().all(JoinHandle::is_finished) {
                return Ok(());
            }
            if let Some(signal) = signals.wait(FRAME.min(TIME_LIMIT - elapsed)) {
                return Err(Failure::signal(signal));
            }
        }
    }

    /// Checks the nodes, and reports each node that votes again.
    fn look(&mut self, elapsed: Duration) -> Result<(), Failure> {
        let Some(observer) = &self.observer else { return Ok(()) };
        observer.leader("redbolt:demo:shelf:0").wait()?;
        let before = std::mem::replace(&mut self.seen, observer.nodes().wait());
        for (index, (old, new)) in before.iter().zip(&self.seen).enumerate() {
            if old.state != NodeState::Admitted && new.state == NodeState::Admitted {
                self.view.event(elapsed, &format!("node {} votes again", index + 1))?;
            }
        }
        Ok(())
    }

    fn draw(&mut self, elapsed: Duration) -> Result<(), Failure> {
        self.pace.push_back((elapsed, self.shop.sold()));
        while self.pace.len() > 10 {
            self.pace.pop_front();
        }
        let scene = Scene {
            title: &self.title,
            elapsed,
            nodes: &self.seen,
            shop: &self.shop,
            per_second: per_second(&self.pace),
        };
        Ok(self.view.draw(&scene)?)
    }
}

fn per_second(pace: &VecDeque<(Duration, u32)>) -> u32 {
    let (Some((from, before)), Some((to, after))) = (pace.front(), pace.back()) else { return 0 };
    let ms = u32::try_from(to.saturating_sub(*from).as_millis()).unwrap_or(u32::MAX).max(1);
    after.saturating_sub(*before).saturating_mul(1000) / ms
}

fn summary(shop: &Shop, elapsed: Duration, args: &DemoArgs, json: bool) -> Result<(), Failure> {
    let (sold, oversold) = (shop.sold(), shop.oversold());
    let is_right = sold == shop.stock && oversold == 0;
    if json {
        // Without locks there is no latency.
        let latency = shop.with_latency(|it| (!it.is_empty()).then(|| percentiles(it)));
        say(json!({
            "stock": shop.stock,
            "sold": sold,
            "oversold": oversold,
            "acquire_us": latency,
            "seconds": elapsed.as_millis() as f64 / 1000.0,
        }))?;
    } else {
        let paint = Paint::stdout();
        say(format_args!("\nsold      {sold} of {} in {}", shop.stock, short(elapsed)))?;
        say(format_args!(
            "oversold  {}",
            if oversold == 0 { paint.green(0) } else { paint.red(oversold) }
        ))?;
        shop.with_latency(|acquire| {
            if acquire.is_empty() {
                return Ok(());
            }
            let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|it| short(at(acquire, it)));
            say(format_args!("acquire   p50 {p50}, p99 {p99}, longest {longest}, waiting included"))
        })?;
        say(verdict(is_right, oversold, args.no_lock))?;
    }
    if is_right { Ok(()) } else { Err(Failure::code(OVERSOLD)) }
}

fn verdict(is_right: bool, oversold: u32, no_lock: bool) -> &'static str {
    match (is_right, no_lock) {
        (true, false) => "Every piece was sold exactly once.",
        (true, true) => "By chance nothing was oversold; more --workers make overselling likelier.",
        (false, true) => {
            "Two workers read the same stock and both sold it: run it without --no-lock."
        }
        (false, false) if oversold > 0 => "More was sold than there was: please report this.",
        (false, false) => {
            "The shop closed before all was sold: the nodes are too slow or cannot be reached."
        }
    }
}
