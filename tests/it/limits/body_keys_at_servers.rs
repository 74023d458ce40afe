//! Names of users in bodies, at real servers and with a real database: requests that they take for the same user have the same key,
//! or are refused.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use http::{Method, Uri};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::gate::{BodyField, BodyFields, JsonPointer};
use tidegate::http1::{RequestHead, names};

use crate::support::{Client, Message, Process, Tidegate, WebServer, command, eventually};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
/// The collations for which `src/gate/equal_characters.txt` is made.
const COLLATIONS: [&str; 4] =
    ["utf8mb4_unicode_ci", "utf8mb4_general_ci", "utf8mb4_unicode_520_ci", "utf8mb4_uca1400_ai_ci"];

/// Starts a server of `tests/sign_in`.
fn sign_in(program: &str, script: &str) -> WebServer {
    let ready = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let script = format!("{}/tests/sign_in/{script}", env!("CARGO_MANIFEST_DIR"));
    WebServer::start(program, ready, |_, port| vec![script.clone(), port.to_string()])
}

fn post(address: SocketAddr, target: &str, media_type: &str, body: &str) -> Message {
    Client::connect(address).ask(&format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {media_type}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Sends each of these requests, whose paths begin with `/json` or `/form`, to the server and through the proxy with a limit by the
/// field `username`. Those that the server takes for Eve's share one count, or are refused. Those that the last field marks must be
/// among them: they show that the server reads such a request.
fn compare(server: &WebServer, requests: &[(&str, &str, &str, bool)]) {
    let address = server.addr(Ipv4Addr::LOCALHOST.into());
    let limited = |kind: &str, key: &str| {
        format!(
            "[limits.{kind}]\nrate = \"1000/hour\"\nkey = \"{key}\"\non_missing = \"deny\"\nmissing_status = 400\n\
             [[routes]]\npath = \"/{kind}/*\"\nlimits = [\"{kind}\"]\nupstream = \"http://{address}\"\n\
             rewrite = {{ strip_prefix = \"/{kind}\" }}\n"
        )
    };
    let proxy = Tidegate::start(&(limited("json", "body:/username") + &limited("form", "form:username")));
    let mut counted = HashMap::from([("/json", 0), ("/form", 0)]);
    for &(target, media_type, body, is_marked) in requests {
        let (kind, rest) = target.split_at(5);
        let response = post(address, rest, media_type, body);
        let name =
            serde_json::from_str(response.text()).map_or(Value::Null, |it: Value| it["username"].clone());
        // Frameworks pass an array on to the database, which looks for each of its names.
        let is_eve = name == "eve" || name == json!(["eve"]);
        assert!(is_eve || !is_marked, "{target} {media_type} {body}: the server reads {name}");
        let response = post(proxy.addr(), target, media_type, body);
        if is_eve && response.status() != 400 {
            let count = counted.get_mut(kind).unwrap();
            *count += 1;
            let remaining = (1000 - *count).to_string();
            assert_eq!(
                response.header("x-ratelimit-remaining"),
                Some(&*remaining),
                "{target} {media_type} {body}"
            );
        }
    }
    assert!(counted.values().all(|count| *count > 0), "ordinary requests are served");
}

#[test]
fn requests_that_rails_takes_for_one_user_share_a_count() {
    let server = sign_in("ruby", "rails.rb");
    let (plain, made_up) = (r#"{"username":"eve"}"#, r#"{"username":"made-up"}"#);
    let both = r#"{"username":"made-up","x":"&username=eve&"}"#;
    compare(
        &server,
        &[
            ("/json/", JSON, plain, true),
            ("/json/?username=eve", JSON, plain, true),
            ("/json/?username=eve", JSON, made_up, true),
            ("/json/?[username]=eve", JSON, made_up, true),
            ("/json/?username[]=eve", JSON, made_up, true),
            ("/json/?user%6eame=%65ve", JSON, made_up, true),
            // Rack splits queries so before version 3.
            ("/json/?x=1;username=eve", JSON, made_up, false),
            ("/json/?Username=eve", JSON, made_up, false),
            ("/json/?username%00=eve", JSON, made_up, false),
            ("/json/", JSON, r#"{"username":"\e\v\e"}"#, false),
            ("/json/", JSON, r#"/* */{"username":"eve"}"#, false),
            ("/json/", JSON, r#"{"username":"made-up","username":"eve"}"#, true),
            ("/json/", JSON, r#"{"username\u0000":"made-up","username":"eve"}"#, true),
            ("/json/", "application/json, text/plain", plain, true),
            ("/json/", "application/json; charset=utf-16", plain, true),
            ("/json/", "application/x-www-form-urlencoded,x/a+json", both, true),
            ("/form/", FORM, "username=eve", true),
            ("/form/?username=eve", FORM, "username=made-up", true),
            ("/form/?a;username=eve", FORM, "username=made-up", false),
            ("/form/", FORM, "[username]=eve", true),
            ("/form/", FORM, "a=1& username=eve", true),
            ("/form/", "application/x-www-form-urlencoded; charset=utf-8", "username=%65ve", true),
        ],
    );
}

#[test]
fn requests_that_django_takes_for_one_user_share_a_count() {
    // Debian's Python, for which `scripts/setup` installs the framework; another one may come first in PATH.
    let server = sign_in("/usr/bin/python3", "django_rest.py");
    let (plain, utf7) = (r#"{"username":"eve"}"#, r#"{"username":"+AGUAdgBl-"}"#);
    let form_utf7 = "username=%2BAGUAdgBl-";
    compare(
        &server,
        &[
            ("/json/", JSON, plain, true),
            ("/json/", "Application/JSON; Charset=\"UTF-8\"", plain, true),
            ("/json/", "application/json; charset=us-ascii; version=\"1;charset=utf-7\"", plain, true),
            ("/json/", "application/json; charset=utf-7", utf7, true),
            ("/json/", "application/json;charset*=utf-7", utf7, true),
            ("/json/", "application/json;charset*=utf-8''utf-7", utf7, true),
            ("/json/", "application/json;charset*=utf-8''utf%2d7", utf7, true),
            ("/json/", "application/json;charset*0=utf-7", utf7, true),
            ("/json/", "application/json; charset =utf-7", utf7, true),
            ("/json/", "application/json; x='; charset=utf-7", utf7, true),
            ("/json/", "application/json; charset=utf-8; charset=u7", utf7, true),
            ("/json/", "application/json; version=\"1\\\";charset=utf-7;v=\"", utf7, false),
            ("/json/", "application/*", plain, true),
            ("/json/?username=eve", JSON, r#"{"username":"made-up"}"#, false),
            ("/json/", JSON, "{\"username\":\"\\u0065ve\"}", true),
            ("/form/", FORM, "username=eve", true),
            ("/form/", "application/x-www-form-urlencoded;charset*=utf-8''utf-7", form_utf7, true),
            ("/form/", "application/x-www-form-urlencoded; charset=utf-7", form_utf7, true),
            // The field of Django's own sign-in normalizes names (NFKC).
            ("/form/form", FORM, "username=eve", true),
            ("/form/form", FORM, "username=%EF%BD%85%F0%9D%90%AF%E2%93%94+", true),
            ("/form/form", FORM, "username=\u{1d452}ve", true),
            ("/form/form", FORM, "username=made-up&username=eve", true),
        ],
    );
}

/// A database without any tables.
struct MariaDb {
    _process: Process,
    directory: TempDir,
}

impl MariaDb {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("data/test")).unwrap();
        let option = |name: &str| format!("--{name}={}", directory.path().join(name).display());
        let mut command = command("mariadbd");
        command
            .args([
                "--no-defaults",
                "--user=root",
                "--skip-grant-tables",
                "--skip-networking",
                "--innodb=OFF",
                "--default-storage-engine=MyISAM",
            ])
            .arg(format!("--datadir={}", directory.path().join("data").display()))
            .args([option("socket"), option("pid-file")]);
        let mut process = Process::start_silent(&mut command);
        let socket = directory.path().join("socket");
        eventually("MariaDB listens", || {
            assert!(process.try_wait().is_none(), "MariaDB has ended");
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        Self { _process: process, directory }
    }

    /// The rows of a query, with tabs between their columns.
    fn rows(&self, query: &str) -> Vec<String> {
        let socket = format!("--socket={}", self.directory.path().join("socket").display());
        let options = ["--no-defaults", "--default-character-set=utf8mb4", "--skip-column-names", "--quick"];
        let output = command("mariadb")
            .args(options)
            .args([&socket, "--batch", "--execute", query, "test"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// The values by which the proxy counts a request with this name; none for a name without any letters.
fn counted(name: &str) -> Vec<String> {
    let mut head = RequestHead::new(Method::POST, Uri::from_static("/"));
    head.fields.push(names::CONTENT_TYPE, JSON.as_bytes());
    let field = BodyField::Json(JsonPointer::parse("/name").unwrap());
    let body = json!({ "name": name }).to_string();
    let fields = BodyFields::find(std::slice::from_ref(&field), &head, Ok(body.as_bytes()));
    fields.values(&field).map_or_else(|_| Vec::new(), <[String]>::to_vec)
}

#[test]
fn names_that_mariadb_compares_as_equal_share_a_count() {
    let names = [
        "eve",
        "EVE",
        "eve ",
        "eve   ",
        "e\u{301}ve\u{300}",
        "e\u{200b}v\u{200d}e",
        "\u{feff}eve",
        "ev\u{7}e\u{0}",
        "\u{ff25}\u{24e5}e",
        "ev\u{363}",
        "stra\u{df}e",
        "STRASSE",
        "user1",
        "user\u{661}",
        "user\u{2780}",
        "\u{131}vy",
        "\u{130}VY",
        "ivy",
        "\u{d8}re \u{c6}",
        "ore ae",
        "か",
        "ｶﾞ",
    ];
    let database = MariaDb::start();
    let literal = |(number, name): (usize, &&str)| {
        let hex = name.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        format!("SELECT {number} AS n, _utf8mb4 X'{hex}' AS v")
    };
    let table = names.iter().enumerate().map(literal).collect::<Vec<_>>().join(" UNION ALL ");
    for collation in COLLATIONS {
        let rows = database.rows(&format!(
            "SELECT a.n, b.n FROM ({table}) AS a JOIN ({table}) AS b ON a.n < b.n AND a.v = b.v COLLATE {collation}"
        ));
        let pair = |row: &String| {
            let (one, other) = row.split_once('\t').unwrap();
            [one, other].map(|number| names[number.parse::<usize>().unwrap()])
        };
        let pairs: Vec<[&str; 2]> = rows.iter().map(pair).collect();
        assert!(
            pairs.contains(&["eve", "EVE"]) && pairs.contains(&["eve", "eve "]),
            "{collation}: {pairs:?}"
        );
        if collation != "utf8mb4_general_ci" {
            for equal in ["e\u{301}ve\u{300}", "e\u{200b}v\u{200d}e", "ev\u{7}e\u{0}"] {
                assert!(pairs.contains(&["eve", equal]), "{collation}: {equal:?}");
            }
        }
        for [one, other] in pairs {
            assert_eq!(counted(one), counted(other), "{collation}: {one:?} {other:?}");
        }
    }
}

#[test]
fn characters_that_mariadb_compares_as_equal_share_a_count() {
    let database = MariaDb::start();
    let mut forms: HashMap<char, Vec<String>> = HashMap::new();
    let mut wrong = Vec::new();
    for collation in COLLATIONS {
        let rows = database.rows(&format!(
            "SELECT seq, HEX(WEIGHT_STRING(CONVERT(CHAR(seq USING utf32) USING utf8mb4) COLLATE {collation})) \
             FROM seq_0_to_131071 WHERE seq NOT BETWEEN 0xd800 AND 0xdfff"
        ));
        assert_eq!(rows.len(), 0x20000 - 0x800);
        let weighed = rows.iter().map(|row| {
            let (number, weight) = row.split_once('\t').unwrap();
            (char::from_u32(number.parse().unwrap()).unwrap(), weight)
        });
        // One weight is that of all characters beyond U+FFFF, some of which are others for NFKD. What is a character in one
        // collation and ignored in another, or one and two characters, can't be equal to both.
        let is_compared = |character: &char, weight: &str| {
            weight != "FFFD" && !(collation == "utf8mb4_general_ci" && matches!(character, 'ß' | '\u{345}'))
        };
        let weighed: Vec<(char, &str)> = weighed.filter(|(it, weight)| is_compared(it, weight)).collect();
        let mut equal: HashMap<&str, char> = HashMap::new();
        for &(character, weight) in &weighed {
            forms.entry(character).or_insert_with(|| counted(&character.to_string()));
            let first = *equal.entry(weight).or_insert(character);
            if forms[&first] != forms[&character] {
                wrong.push(format!(
                    "{collation}: {first:?} {:?}, {character:?} {:?}",
                    forms[&first], forms[&character]
                ));
            }
        }
        // A ligature has the weights of its letters. In those that are left out, letters have another order or another number.
        for &(character, weight) in
            weighed.iter().filter(|(_, weight)| weight.len() > 4 && weight.len() % 4 == 0)
        {
            let is_left_out =
                matches!(character, 'Ŀ' | 'ŀ' | '\u{675}'..='\u{678}' | '\u{fbdd}' | '\u{fdfa}');
            let letters = (0..weight.len()).step_by(4).map(|at| equal.get(&weight[at..at + 4]));
            if let (Some(letters), false) = (letters.collect::<Option<Vec<_>>>(), is_left_out) {
                let expected: String = letters.into_iter().map(|letter| forms[letter].concat()).collect();
                let form = forms[&character].concat().replace(' ', "");
                if form != expected {
                    wrong.push(format!("{collation}: {character:?} {form:?}, its letters {expected:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(40)]);
}
