//! Costs that the response decides: from the file to the rules of limits.

use std::fs;
use std::time::Duration;

use http::header::HeaderName;
use tidegate::config::{self, Loaded};
use tidegate::gate::{
    Cost, CostBasis, CostSource, JsonPointer, LlmCost, ReserveTerm, SettledCost, StreamUsage,
};
use tidegate::limit::{Policy, PolicyId};
use tidegate::usage::{EstimateRules, Prices, Tokens, Weight, Weights};

/// A file whose only limit has these lines.
fn loaded(lines: &str) -> Loaded {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[limits.a]\n{lines}\n[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\n\
         upstream = \"http://127.0.0.1:9\"\n"
    );
    config::parse(&text, "tidegate.toml", &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

/// The policy and the cost of a limit with these lines.
fn settled(lines: &str) -> (Policy, SettledCost) {
    let loaded = loaded(lines);
    let gate = &loaded.config.snapshot.gate;
    let Cost::Settled(cost) = &gate.limit_rules[PolicyId(0)].cost else { panic!("{lines}") };
    (gate.limits.policies[0].clone(), (**cost).clone())
}

fn llm(lines: &str) -> LlmCost {
    let (_, cost) = settled(lines);
    let CostBasis::Llm(llm) = cost.basis else { panic!("{lines}") };
    llm
}

fn weight(text: &str) -> Weight {
    Weight::parse(text, 9).unwrap()
}

fn weights([input, cached_input, cache_write, output, reasoning]: [&str; 5]) -> Weights {
    Weights {
        input: weight(input),
        cached_input: weight(cached_input),
        cache_write: weight(cache_write),
        output: weight(output),
        reasoning: weight(reasoning),
    }
}

#[test]
fn parts_are_read_in_all_of_their_forms() {
    let name = HeaderName::from_static("x-cost");
    let pointer = JsonPointer::parse("/max_tokens").unwrap();
    let term = ReserveTerm::Units;
    for (reserve, terms) in [
        ("5", vec![term(5)]),
        ("\"header:X-Cost\"", vec![ReserveTerm::Header(name.clone())]),
        ("\"body:/max_tokens\"", vec![ReserveTerm::Body(pointer.clone())]),
        ("[\"body:/max_tokens\", 500]", vec![ReserveTerm::Body(pointer), term(500)]),
    ] {
        let (_, cost) = settled(&format!(
            "rate = \"1000/s\"\ntrust = \"any\"\ncost = {{ reserve = {reserve}, settle = \"seconds\" }}"
        ));
        assert_eq!(cost.basis, CostBasis::Parts { reserve: terms.into(), settle: CostSource::Seconds });
    }
    for (settle, source) in [
        ("header:x-cost", CostSource::Header(name.clone())),
        ("trailer:X-Cost", CostSource::Trailer(name)),
        ("json:/usage/cost", CostSource::Json("/usage/cost".into())),
        ("response_bytes", CostSource::ResponseBytes),
        ("request_bytes", CostSource::RequestBytes),
        ("seconds", CostSource::Seconds),
    ] {
        let (policy, cost) =
            settled(&format!("rate = \"1000/s\"\ncost = {{ reserve = 1, settle = \"{settle}\" }}"));
        assert_eq!(cost.basis, CostBasis::Parts { reserve: Box::new([term(1)]), settle: source });
        assert_eq!((cost.max_reserve, cost.max, policy.settled_max()), (1_000, 100_000, Some(100_000)));
        assert_eq!((cost.read_body, cost.finish_abandoned), (1 << 20, Duration::ZERO));
        assert!(!cost.keeps_header && !cost.stops_streams && policy.settles());
    }
}

#[test]
fn keys_beside_the_cost_are_read() {
    let lines = "rate = \"1000/s\"\ncost_max = 300\nkeep_cost_header = true\nfinish_abandoned = \"10s\"\n\
                 cost = { reserve = 1, settle = \"trailer:x-cost\" }\ntiers = { by = \"method\", GET = { rate = \"20/s\" } }";
    let (policy, cost) = settled(lines);
    assert_eq!((cost.max_reserve, cost.max, policy.settled_max()), (20, 300, Some(300)));
    assert_eq!((cost.keeps_header, cost.finish_abandoned), (true, Duration::from_secs(10)));
    let (_, cost) =
        settled("rate = \"100000/s\"\ncost = \"llm_tokens\"\nread_body = \"64KiB\"\nstop_streams = true");
    assert_eq!((cost.read_body, cost.stops_streams), (65_536, true));
}

#[test]
fn the_default_of_charge_on_is_every_status_but_errors() {
    let statuses = |lines: &str| {
        let loaded = loaded(lines);
        loaded.config.snapshot.gate.limits.policies[0].charge_on().to_vec()
    };
    let cost = "rate = \"1000/s\"\ncost = { reserve = 1, settle = \"seconds\" }";
    let default: Vec<u16> = std::iter::once(101).chain(200..=399).collect();
    assert_eq!(statuses(cost), default);
    assert_eq!(
        statuses(&format!("{cost}\ncharge_on = [404, \"2xx\", 404]")),
        (200..300).chain([404]).collect::<Vec<_>>()
    );
    assert_eq!(
        statuses("rate = \"5/s\"\ncharge_on = [\"5xx\", \"1xx\"]"),
        std::iter::once(101).chain(500..600).collect::<Vec<_>>()
    );
    assert!(statuses("rate = \"5/s\"").is_empty());
}

#[test]
fn tokens_have_weights() {
    let tokens = llm("rate = \"100000/s\"\ncost = \"llm_tokens\"");
    assert_eq!(*tokens.prices, Prices::uniform(weights(["1", "1", "1", "1", "0"])));
    assert_eq!((tokens.estimate, tokens.stream_usage), (EstimateRules::default(), StreamUsage::Count));
    assert_eq!(tokens.name(), "llm_tokens");
    for (written, read) in [
        ("input = 1, output = 1", ["1", "1", "1", "1", "0"]),
        ("output = 1.5", ["0", "0", "0", "1.5", "0"]),
        ("input = 2, cached_input = 0.2, reasoning = \"0.125\"", ["2", "0.2", "2", "0", "0.125"]),
        ("input = 1_000, cache_write = 1.25", ["1000", "1000", "1.25", "0", "0"]),
    ] {
        let read_weights = llm(&format!("rate = \"9000000/s\"\ncost = {{ llm = {{ {written} }} }}"));
        assert_eq!(*read_weights.prices, Prices::uniform(weights(read)), "{written}");
    }
    let lines = "rate = \"100000/s\"\ncost = \"llm_tokens\"\nestimate = 0.125\ndefault_output = 0\nbytes_per_token = 2\n\
                 default_media = 0\nstream_usage = \"require\"";
    let tokens = llm(lines);
    let rules = EstimateRules { default_output: 0, bytes_per_token: 2, default_media: 0, output_share: 125 };
    assert_eq!((tokens.estimate, tokens.stream_usage), (rules, StreamUsage::Require));
}

#[test]
fn prices_are_those_of_the_file_beside_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.toml");
    fs::write(
        &path,
        "default = { input = 15, output = 75 }\n[models]\n\
         \"small*\" = { input = 0.15, cached_input = 0.000000075, output = 0.6 }\n",
    )
    .unwrap();
    let text = "listen = \"127.0.0.1:0\"\n[limits.a]\nalgorithm = \"fixed_window\"\nrate = \"20000000/month\"\nprices = \"prices.toml\"\n\
                [[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nupstream = \"http://127.0.0.1:9\"\n";
    let file = directory.path().join("tidegate.toml");
    let parse = || config::parse(text, file.to_str().unwrap(), &|_| None);
    let loaded = parse().unwrap();
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert_eq!(loaded.files.files, std::slice::from_ref(&path), "a watcher sees the file");
    let gate = &loaded.config.snapshot.gate;
    let Cost::Settled(cost) = &gate.limit_rules[PolicyId(0)].cost else { panic!("the response decides") };
    let CostBasis::Llm(llm) = &cost.basis else { panic!("tokens") };
    let tokens = Tokens { input: 1_000_000, cached_input: 200_000, output: 100_000, ..Tokens::default() };
    let (of_model, is_known) = llm.prices.of(Some("small-2"));
    assert_eq!((of_model.units(&tokens), is_known), (120_000 + 1 + 60_000, true));
    let (default, is_known) = llm.prices.of(Some("large"));
    assert_eq!((default.units(&tokens), is_known), (15_000_000 + 7_500_000, false));
    // A change of the file is a change of the limit.
    let before = loaded.fingerprint;
    fs::write(&path, "default = { input = 15, output = 80 }\n").unwrap();
    assert_eq!(parse().unwrap().fingerprint.changes_since(&before).len(), 1);
    fs::write(&path, "default = { input = -1, output = 80 }\n").unwrap();
    let report = parse().unwrap_err();
    let place = format!("{}:1:21: `input` must be from 0 to 1000000, not -1", path.display());
    assert_eq!(report.lines().collect::<Vec<_>>(), [place]);
    assert_eq!(report.files().files, [path]);
}
