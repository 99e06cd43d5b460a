//! `redbolt config`: the settings in force, and where each came from.

use redbolt::driver::Driver;
use redbolt::driver::mio::Poll;
use serde_json::json;

use crate::args::Global;
use crate::exit::Failure;
use crate::output::say;
use crate::session::TOKENS;
use crate::settings;
use crate::sources::{Origins, SETTINGS, Setting, Source};
use crate::table::Table;

pub(crate) fn run(global: &Global, origins: &Origins) -> Result<(), Failure> {
    let file = origins.file.as_ref().map(|file| file.display().to_string());
    let settings = || SETTINGS.iter().zip(&origins.sources);
    if global.json {
        let list = settings().map(|(setting, source)| {
            json!({
                "key": setting.name,
                "flag": format!("--{}", setting.name),
                "variable": setting.variable(),
                "default": or_null(setting.default),
                "value": value(global, setting),
                "source": word(source),
            })
        });
        say(json!({"file": file, "settings": list.collect::<Vec<_>>()}))?;
        return check(global);
    }
    let mut table = Table::new(["setting", "from", "value"]);
    for (setting, source) in settings() {
        let place = match source {
            Source::Flag => format!("--{}", setting.name),
            Source::Variable => setting.variable(),
            Source::File => file.clone().unwrap_or_default(),
            Source::Default => "default".to_owned(),
        };
        table.add([setting.name.to_owned(), place, value(global, setting).unwrap_or_default()]);
    }
    // A list of nodes may be longer than a line: the terminal breaks it.
    say(table)?;
    check(global)
}

/// Fails as every other command would with these settings. No node is asked.
fn check(global: &Global) -> Result<(), Failure> {
    let Some(nodes) = &global.nodes else { return Ok(()) };
    let config = settings::config_of(global, nodes)?;
    Driver::new(config, Poll::new()?.registry(), 0..TOKENS)?;
    Ok(())
}

fn value(global: &Global, setting: &Setting) -> Option<String> {
    (setting.get)(global).or_else(|| or_null(setting.default))
}

fn or_null(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

const fn word(source: &Source) -> &'static str {
    match source {
        Source::Flag => "flag",
        Source::Variable => "variable",
        Source::File => "file",
        Source::Default => "default",
    }
}
