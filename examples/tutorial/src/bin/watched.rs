//! A client that counts what it does, for Prometheus.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use shop::{Result, Shop};

fn main() -> Result {
    let metrics = PrometheusBuilder::new().install_recorder()?; // before the first client
    let shop = Shop::open()?;
    let client = shop.client()?;
    for _ in 0..100 {
        let lease = client.lock("stock", Duration::from_secs(2)).wait()?;
        lease.unlock().wait()?;
    }
    client.shutdown(Duration::from_secs(1)).wait(); // counts go out once per second, and at the end
    print!("{}", metrics.render());
    Ok(())
}
