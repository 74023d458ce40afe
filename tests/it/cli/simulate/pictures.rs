//! Pictures: their contents, and that those of the documentation are current.

use std::path::Path;

use roxmltree::{Document, Node};

use super::{LIMITS, run, simulate};

fn marks<'a>(document: &'a Document<'a>) -> impl Iterator<Item = Node<'a, 'a>> {
    document.descendants().filter(|node| node.attribute("class") == Some("mark"))
}

fn texts(document: &Document<'_>) -> Vec<String> {
    document.descendants().filter(Node::is_text).filter_map(|node| node.text()).map(str::to_owned).collect()
}

#[test]
fn a_picture_has_a_mark_for_each_arrival_and_limit() {
    let arrivals = "0 a\n0 a\n0 <b>&\"\n0.02 a\n0.02 a\n0.05 a 3\n2 a\n1.5 a\n";
    for (args, panels) in [
        (&["--limit", "bucket"][..], 1),
        (&["--limit", "bucket,spaced,slow"], 3),
        (&["--limit", "bucket,spaced", "--compare"], 2),
    ] {
        let output = simulate(LIMITS, arrivals, &[args, &["--format", "svg"]].concat());
        assert_eq!((output.status, output.stderr.as_str()), (0, ""));
        let document = Document::parse(&output.stdout).unwrap();
        assert_eq!(marks(&document).count(), 8 * panels, "{args:?}");
        // A picture contains no scripts and no external resources.
        let is_active = |node: &Node<'_, '_>| {
            ["script", "foreignObject", "image", "a"].contains(&node.tag_name().name())
                || node
                    .attributes()
                    .any(|attribute| attribute.name().starts_with("on") || attribute.name() == "href")
        };
        assert!(!document.descendants().any(|node| is_active(&node)));
        let texts = texts(&document);
        assert!(texts.iter().any(|text| text.starts_with("8 requests of 2 keys in 2 s")), "{texts:?}");
        assert!(texts.iter().any(|text| text == "remaining for <b>&\""), "{texts:?}");
    }
}

/// Many renderers know no custom properties, and draw black where a colour is not understood.
#[test]
fn colours_have_fallbacks_for_custom_properties() {
    let output = simulate(LIMITS, "0\n0\n", &["--limit", "bucket", "--format", "svg"]);
    let (before, _) = output.stdout.split_once("</style>").unwrap();
    let declarations: Vec<&str> = before.split(['{', ';', '}']).collect();
    let mut count = 0;
    for pair in declarations.windows(2) {
        if let Some((property, _)) = pair[1].split_once(":var(") {
            let fallback = pair[0].strip_prefix(property).and_then(|rest| rest.strip_prefix(":#"));
            assert!(fallback.is_some_and(|colour| [3, 6].contains(&colour.len())), "{pair:?}");
            count += 1;
        }
    }
    assert!(count > 10 && count == output.stdout.matches("var(").count(), "{count}");
}

#[test]
fn a_picture_shows_the_number_of_admitted_requests() {
    let output = simulate(LIMITS, "0\n0\n0\n0\n0\n", &["--limit", "bucket", "--format", "svg"]);
    let document = Document::parse(&output.stdout).unwrap();
    let texts = texts(&document);
    assert!(texts.iter().any(|text| text == "admitted 3 of 5"), "{texts:?}");
    let shapes = |class: &str| {
        marks(&document)
            .filter(|mark| mark.children().any(|shape| shape.attribute("class") == Some(class)))
            .count()
    };
    assert_eq!((shapes("ok"), shapes("no"), shapes("wait")), (3, 2, 0));
}

#[test]
fn everything_in_a_picture_lies_within_it() {
    let many = (0..5_000).fold(String::new(), |text, number| {
        text + &format!("{}.{number:06} k{}\n", number / 900, number % 9)
    });
    for arrivals in ["", "0\n", "1790000000.25\n1790000000.250001\n", "4000000000\n0\n0.000001\n", &many] {
        let output = simulate(LIMITS, arrivals, &["--limit", "bucket,spaced", "--format", "svg"]);
        assert_eq!((output.status, output.stderr.as_str()), (0, ""));
        let document = Document::parse(&output.stdout).unwrap();
        let number = |node: &Node<'_, '_>, name: &str| node.attribute(name)?.parse::<f64>().ok();
        let height = number(&document.root_element(), "height").unwrap();
        assert_eq!(marks(&document).count(), arrivals.lines().count() * 2);
        for node in document.descendants() {
            for (name, most) in [("x", 800.0), ("cx", 800.0), ("y", height), ("cy", height)] {
                let position = number(&node, name).unwrap_or(0.0);
                assert!((0.0..=most).contains(&position), "{node:?} is at {name} = {position}");
            }
        }
        assert!(!output.stdout.contains("NaN") && !output.stdout.contains("inf"), "{}", output.stdout);
    }
}

/// `make pictures` draws them again.
#[test]
fn the_pictures_of_the_documentation_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(root.join("docs/pictures/list.txt")).unwrap();
    let mut drawn = 0;
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, args) = line.split_once(": ").unwrap();
        let args: Vec<&str> = args.split(' ').collect();
        let output = run(&root.join("docs/pictures"), "", &args);
        assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{line}");
        let kept = std::fs::read_to_string(root.join("docs/pictures").join(name)).unwrap();
        assert!(output.stdout == kept, "docs/pictures/{name} is stale: draw it again with `make pictures`");
        drawn += 1;
    }
    let kept = std::fs::read_dir(root.join("docs/pictures")).unwrap();
    let kept =
        kept.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "svg"));
    // `docs::measurements` compares pictures of growth.
    let kept = kept.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with("growth-"));
    assert_eq!(kept.count(), drawn, "a picture is not in docs/pictures/list.txt");
}
