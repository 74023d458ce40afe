//! Files of prices: units for the tokens of each model.

use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use super::cost_keys::{PriceKeys, PricesKeys};
use super::weights::{GivenWeights, PRICE_DECIMALS};
use crate::config::item::Item;
use crate::config::keys::DeclaredKeys as _;
use crate::config::reader::BrokenText;
use crate::config::report::Problem;
use crate::config::sources::Sources;
use crate::config::table::{Name, Table, entries};
use crate::usage::{ModelPattern, Prices, Weights};

/// The longest file of prices in bytes.
const MAX_FILE: usize = 4 << 20;
const DEFAULT: &str =
    "add, above all tables, the prices of the most expensive model: default = { input = 2.5, output = 10 }";

/// Reads the file of prices that a limit names, relative to `directory`. Problems in it are reported with their places there.
pub(super) fn prices(item: Item<'_>, directory: &Path) -> Option<Arc<Prices>> {
    let text = item.string_like("the name of a file", "such as \"prices.toml\"")?;
    let (path, bytes) = text.read_file(directory);
    let name = path.display().to_string();
    let bytes = match bytes {
        Ok(bytes) if bytes.len() <= MAX_FILE => bytes,
        Ok(bytes) => {
            let title = format!("{name} has {} bytes: too many for a file of prices", bytes.len());
            return text.reject(text.error(title).help(format!("at most {MAX_FILE} are read")));
        }
        Err(error) => return text.reject(text.unreadable(&path, &error)),
    };
    let content = match String::from_utf8(bytes) {
        Ok(content) => content,
        Err(error) => {
            let title = format!("{name} is not valid UTF-8 at byte {}", error.utf8_error().valid_up_to());
            let help = "TOML is written in UTF-8: save the file in that encoding";
            return text.reject(text.error(title).help(help));
        }
    };
    let sources = Sources::new(&name, &content);
    let (root, errors) = DeTable::parse_recoverable(&sources.main.text);
    let is_broken = !errors.is_empty();
    let reader = item.reader.of_other_file(PricesKeys::KEYS);
    let read = of_file(Table::top(&reader, root.get_ref()));
    let has_problems =
        item.reader.add_other_file(&sources, &[BrokenText { source: &sources.main, errors }], reader);
    read.filter(|_| !is_broken && !has_problems).map(Arc::new)
}

fn of_file(table: Table<'_, PricesKeys>) -> Option<Prices> {
    let default = table.default().with(|item| of_model(item, "`default`"));
    if table.default().given().is_none() {
        let title = "the file has no `default`: the prices of models that no pattern matches";
        table.reader.report(Problem::error(table.span(), title).help(DEFAULT).derived());
    }
    let models = table.models().with(models);
    table.close();
    Some(Prices::new(models.ok()?.unwrap_or_default(), default.ok()??))
}

fn models(item: Item<'_>) -> Option<Vec<(ModelPattern, Weights)>> {
    let mut earlier: Vec<ModelPattern> = Vec::new();
    let mut read = Vec::new();
    for (name, item) in entries(item)? {
        let pattern = pattern(&name, item);
        if let Some(pattern) = &pattern {
            warn_if_hidden(&name, item, &earlier);
            earlier.push(pattern.clone());
        }
        read.push(pattern.zip(of_model(item, &format!("model `{}`", name.text))));
    }
    read.into_iter().collect()
}

/// Warns of a pattern that no name reaches, because an earlier one matches all of its names.
fn warn_if_hidden(name: &Name<'_>, item: Item<'_>, earlier: &[ModelPattern]) {
    // A pattern that matches the text of another, in which `*` is a character like others, matches all of its names.
    let Some(hiding) = earlier.iter().find(|pattern| pattern.matches(name.text)) else { return };
    let title =
        format!("`{}` never applies: `{}` above matches all of its names", name.text, hiding.as_str());
    let problem = Problem::warning(name.span.clone(), title);
    item.reader
        .report(problem.help("the first pattern that matches counts: put the more specific one first"));
}

fn pattern(name: &Name<'_>, item: Item<'_>) -> Option<ModelPattern> {
    ModelPattern::parse(name.text).ok().or_else(|| {
        let title = format!("`{}` can't be the name of a model", name.text.escape_debug());
        let help = "a name has 1 to 128 printable characters, with `*` for any text";
        item.reject(Problem::error(name.span.clone(), title).help(help))
    })
}

fn of_model(item: Item<'_>, label: &str) -> Option<Weights> {
    let table = Table::<PriceKeys>::of_or(item, label, "such as { input = 2.5, output = 10 }")?;
    let given = GivenWeights {
        input: table.input().item(),
        cached_input: table.cached_input().given(),
        cache_write: table.cache_write().given(),
        output: table.output().item(),
        reasoning: table.reasoning().given(),
    };
    let has_all = given.input.is_some() && given.output.is_some();
    let weights = given.read(PRICE_DECIMALS);
    table.close();
    weights.filter(|_| has_all)
}
