//! A client that counts what it does, for Prometheus.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use shop::{Result, Shop};

fn main() -> Result {
    let metrics = PrometheusBuilder::new().install_recorder()?; // before the first client
    let shop = Shop::open()?;
    let mut client = shop.client()?;
    for _ in 0..100 {
        let lease = client.lock("stock", Duration::from_secs(2))?;
        client.unlock(lease)?;
    }
    client.export_metrics();
    print!("{}", metrics.render());
    Ok(())
}
