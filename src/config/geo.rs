//! `[geo]`, and conditions on the country and the autonomous system of a client.

use std::path::Path;

use super::item::Item;
use super::keys::keys;
use super::keys::kinds::{Integer, ReadKind};
use super::report::Problem;
use super::table::{Reported, Table};
use crate::gate::{Country, Database, GeoCondition, GeoDatabases};

/// The number of an autonomous system.
pub(super) type Asn = Integer<0, 4_294_967_295, u32>;

keys! {
    /// The keys of `[geo]`.
    GeoKeys {
        /// An MMDB file with `country.iso_code`, such as `"GeoLite2-Country.mmdb"`
        country: Text;
        /// An MMDB file with `autonomous_system_number`, such as `"GeoLite2-ASN.mmdb"`
        asn: Text;
    }
}

keys! {
    /// The keys of `country` as a table.
    CountryNotKeys {
        /// Countries that the client is not in; true also if its country is unknown
        not: List<Text>, required ["DE"];
    }
}

keys! {
    /// The keys of `asn` as a table.
    AsnNotKeys {
        /// Autonomous systems that the client is not in; true also if it is unknown
        not: List<Asn>, required [64496];
    }
}

/// `[geo]`, as far as it could be read.
#[derive(Default)]
pub(super) struct ReadGeo {
    /// None if a database can't be read.
    databases: Option<GeoDatabases>,
    /// Whether the file names a database of countries.
    pub has_country: bool,
    /// Whether it names one of autonomous systems.
    pub has_asn: bool,
}

impl ReadGeo {
    /// Reads `[geo]` and its databases, which are relative to `directory`.
    pub fn read(item: Option<Item<'_>>, directory: &Path) -> Self {
        let Some(item) = item else {
            return Self { databases: Some(GeoDatabases::default()), ..Self::default() };
        };
        let Some(table) = Table::<GeoKeys>::of(item, "[geo]") else {
            // The mistake is reported; errors of routes that need the table would hide it.
            return Self { databases: None, has_country: true, has_asn: true };
        };
        let (has_country, has_asn) = (table.country().given().is_some(), table.asn().given().is_some());
        let country = table.country().with(|item| database(item, directory, &["ASN", "ISP"]));
        let asn = table.asn().with(|item| database(item, directory, &["Country", "City"]));
        table.close();
        let databases = country.ok().zip(asn.ok()).map(|(country, asn)| GeoDatabases { country, asn });
        Self { databases, has_country, has_asn }
    }

    /// The databases, if there are any; an error if one can't be read.
    pub fn into_databases(self) -> Result<Option<Box<GeoDatabases>>, Reported> {
        let databases = self.databases.ok_or(Reported)?;
        let is_used = databases.country.is_some() || databases.asn.is_some();
        Ok(is_used.then(|| Box::new(databases)))
    }

    /// Reads the condition of a route on the country.
    pub fn country(&self, item: Item<'_>) -> Option<GeoCondition<Country>> {
        require(item, "country", self.has_country);
        if item.is_table() {
            let table = Table::<CountryNotKeys>::of(item, "`country`")?;
            let codes = table.not().with(|item| values(item, country));
            table.close();
            return codes.map(GeoCondition::NoneOf);
        }
        values(item, country).map(GeoCondition::AnyOf)
    }

    /// Reads the condition of a route on the autonomous system.
    pub fn asn(&self, item: Item<'_>) -> Option<GeoCondition<u32>> {
        require(item, "asn", self.has_asn);
        if item.is_table() {
            let table = Table::<AsnNotKeys>::of(item, "`asn`")?;
            let numbers = table.not().with(|item| values(item, Asn::read));
            table.close();
            return numbers.map(GeoCondition::NoneOf);
        }
        values(item, Asn::read).map(GeoCondition::AnyOf)
    }
}

/// Reads a database; `others` are words in the types of databases that have other data.
fn database(item: Item<'_>, directory: &Path, others: &[&str]) -> Option<Database> {
    let text = item.string_like("the name of an MMDB file", "put it in quotes")?;
    let (path, bytes) = text.read_file(directory);
    let shown = path.display();
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => return text.reject(text.unreadable(&path, &error)),
    };
    let database = match Database::parse(bytes) {
        Ok(database) => database,
        Err(error) => {
            let problem = text.error(format!("{shown} is not a database in the format MMDB: {error}"));
            return text.reject(problem.help("unpack archives: GeoLite2-Country.mmdb, not .tar.gz"));
        }
    };
    let kind = database.kind();
    if others.iter().any(|other| kind.contains(other)) {
        let title = format!("{shown} is a database of the type {kind}: it has no data for `{}`", item.name);
        item.reader.report(Problem::warning(item.span(), title).help(cure(item.name)));
    }
    Some(database)
}

/// Rejects a condition that needs a database which the file does not name.
fn require(item: Item<'_>, key: &str, is_there: bool) {
    if !is_there {
        let title = format!("this route depends on `{key}`, and the file has no [geo] with `{key}`");
        item.reader.report(item.error(title).help(cure(key)).derived());
    }
}

/// How to name the database of `key`.
pub(super) fn cure(key: &str) -> &'static str {
    if key == "asn" {
        "name a database: [geo] asn = \"GeoLite2-ASN.mmdb\""
    } else {
        "name a database: [geo] country = \"GeoLite2-Country.mmdb\""
    }
}

/// Reads a list, and sorts it.
fn values<T: Ord>(item: Item<'_>, read: impl Fn(Item<'_>) -> Option<T>) -> Option<Box<[T]>> {
    let help = "put the values in brackets: country = [\"DE\", \"FR\"], asn = [64496]";
    let mut values = item.list_of(help, read)?;
    if values.is_empty() {
        let problem = item.error(format!("`{}` names no value: the list is empty", item.name));
        return item.reject(problem.help("name a value, or leave the condition out"));
    }
    values.sort_unstable();
    values.dedup();
    Some(values.into())
}

fn country(item: Item<'_>) -> Option<Country> {
    let text = item.string()?;
    let upper = text.value.to_ascii_uppercase();
    let help = match Country::parse(&upper) {
        Some(_) if upper == "UK" => "the code of the United Kingdom is \"GB\"".to_owned(),
        Some(_) => format!("write \"{upper}\""),
        None => "write two upper-case letters, such as \"DE\"".to_owned(),
    };
    text.parsed("the ISO 3166 code of a country", &help, |code| Country::parse(code).filter(|_| code != "UK"))
}
