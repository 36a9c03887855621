//! The description of a config's routes: a validator accepts it, it is served where the config says,
//! and servers pass schemathesis' tests of it.

use super::Front;
use forebay_tests::{Folder, Start, binary, root};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// A tool that scripts/install-tools installs.
fn tool(name: &str) -> Command {
    Command::new(root().join("target/tools/openapi/bin").join(name))
}

#[track_caller]
fn good(output: &Output, what: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out
}

/// What `forebay openapi FILE` prints.
#[track_caller]
fn described(file: &Path, folder: &Folder) -> String {
    let mut command = Command::new(binary());
    command.arg("openapi").arg(file).current_dir(folder.path()).env("LOGIN_SECRET", "a".repeat(32));
    good(&command.output().expect("the binary runs"), &file.display().to_string())
}

#[track_caller]
fn validate(document: &str, folder: &Folder) {
    let file = folder.write("openapi.json", document);
    let validated = tool("python").args(["-m", "openapi_spec_validator"]).arg(file).output();
    good(&validated.expect("scripts/install-tools installs it"), document);
}

#[test]
fn every_example_is_described_without_a_database() {
    let folder = Folder::new();
    for name in ["codes", "accounts", "accounts-hot", "usages", "items", "links", "in-front", "owners", "app"]
    {
        let document = described(&root().join(format!("examples/{name}.toml")), &folder);
        validate(&document, &folder);
        let read: Value = serde_json::from_str(&document).expect("JSON");
        assert!(read["paths"].as_object().is_some_and(|paths| !paths.is_empty()), "{name}");
    }
    assert!(!folder.path().join("data").exists(), "it makes nothing");
}

const CONFIG: &str = r#"
[auth.users]
kind = "key"
table = "keys"
subject = "owner"

[table.keys]
columns = { hash = "text key", owner = "text" }

[table.notes]
columns = { id = "serial key", text = "text(80)", stars = "smallint = 0", at = "timestamp = now()", price = "numeric(6,2) null" }

[[endpoint]]
route = "GET /openapi.json"
openapi = true

[[endpoint]]
route = "POST /notes"
guard = { any = ["users", { header = "X-Secret", secret = "sesame" }] }
insert = "notes"
values = { text = "$text", stars = "$stars", price = "$price" }
params = { stars = "smallint 0..5 = 0", price = "numeric(6,2)?" }
rate = "1000/s"

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"
reply = { fields = { number = "$id", text = "$text" }, wrap = "note" }

[[endpoint]]
route = "DELETE /notes/{note}"
delete = "notes"
key = "$note"

[[endpoint]]
route = "GET /notes"
sql = "SELECT id FROM notes WHERE stars >= $least AND text = $like"
params = { like = "text = a" }
reply = { fields = ["id"] }
returns = "many"
"#;

#[test]
fn the_description_says_types_bounds_answers_and_who_may_ask() {
    let front = Front::start(CONFIG);
    let mut client = front.server.client();
    let served = client.get("/openapi.json");
    let document = served.expect(200);
    validate(served.text(), &front.folder);
    let at = |pointer: &str| document.pointer(pointer).unwrap_or(&Value::Null).to_string();
    let post = "/paths/~1notes/post";
    let field =
        |name: &str| at(&format!("{post}/requestBody/content/application~1json/schema/properties/{name}"));
    for (found, expected) in [
        (field("text"), r#"{"maxLength":80,"pattern":"^[^\\u0000]*$","type":"string"}"#),
        (field("stars"), r#"{"maximum":5,"minimum":0,"type":["integer","null"]}"#),
        (field("price"), r#"{"pattern":"^-?[0-9]{1,4}(\\.[0-9]{1,2})?$","type":["string","null"]}"#),
        (at(&format!("{post}/requestBody/content/application~1json/schema/required")), r#"["text"]"#),
        (at(&format!("{post}/security")), r#"[{"users":[]},{"secret_in_header_X-Secret":[]}]"#),
        (at("/components/securitySchemes/users"), r#"{"in":"header","name":"X-Api-Key","type":"apiKey"}"#),
        (
            at(
                "/paths/~1notes~1{id}/get/responses/200/content/application~1json/schema/properties/note/properties",
            ),
            r#"{"number":{"format":"int64","maximum":9223372036854775807,"minimum":-9223372036854775808,"type":"integer"},"text":{"maxLength":80,"type":"string"}}"#,
        ),
        (at("/paths/~1notes~1{id}/delete/parameters/0/name"), r#""id""#),
        (at("/paths/~1notes/get/parameters/1/schema/maximum"), "32767"),
        (at("/paths/~1notes/get/parameters/0/required"), "false"),
    ] {
        let sorted = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(sorted(&found), sorted(expected));
    }
    let statuses = document.pointer(&format!("{post}/responses")).and_then(Value::as_object);
    let statuses: Vec<_> = statuses.expect("answers").keys().map(String::as_str).collect();
    // 404 is the status of an unknown secret.
    let expected = ["201", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503", "504"];
    assert_eq!(statuses, expected);
    let offline: Value =
        serde_json::from_str(&described(&front.folder.path().join("front.toml"), &front.folder))
            .expect("JSON");
    assert_eq!(offline["paths"], document["paths"]);
    client.ask("POST", "/openapi.json", Some("{}")).expect_problem(405, "");
}

/// An existing row may have expired, and a value may be out of its column's range.
const SETTINGS: &str = "[checks]\npositive_data_acceptance.expected-statuses = \
    ['2xx', '3xx', '401', '403', '404', '409', '410', '422', '429', '5xx']\n";

/// Tests the servers of the examples against their descriptions. Behaviour that no description can express
/// is left out: paths that another route matches too (`GET /{code}` takes `GET /links`) have methods that
/// are described there; handlers check their input themselves; generating rows takes time, and is refused
/// while it runs.
#[test]
fn servers_of_the_examples_do_what_their_descriptions_say() {
    const ROUTES_OVERLAP: &str = "ignored_auth,unsupported_method,allow_header_conformance";
    // Every run sends the same requests, except one with a given number of random examples.
    let (phases, how) = match std::env::var("FOREBAY_FUZZ_EXAMPLES") {
        Ok(examples) => ("coverage,fuzzing", vec!["--max-examples".to_owned(), examples]),
        Err(_) => ("coverage", vec!["--generation-deterministic".to_owned()]),
    };
    for (name, excluded, operations) in [
        ("links", ROUTES_OVERLAP, None),
        ("items", ROUTES_OVERLAP, Some("post_items_generate")),
        ("usages", "ignored_auth", None),
        ("owners", "ignored_auth", None),
        ("codes", "ignored_auth,positive_data_acceptance", None),
        ("accounts-hot", ROUTES_OVERLAP, Some("post_accounts_generate_test_data")),
        ("accounts", ROUTES_OVERLAP, Some("post_accounts_generate_test_data")),
    ] {
        let folder = Folder::new();
        let file = root().join(format!("examples/{name}.toml"));
        let server = Start::new(binary(), &folder, &file).start();
        server.wait_healthy();
        let document = folder.write("openapi.json", &described(&file, &folder));
        folder.write("schemathesis.toml", SETTINGS);
        let mut command = tool("schemathesis");
        command.current_dir(folder.path()).arg("run").arg(document);
        command.args(["--url", &format!("http://{}", server.address), "--no-color"]);
        command.args(&how).args(["--phases", phases, "--checks", "all"]);
        command.args(["--exclude-checks", excluded]);
        command.args(operations.into_iter().flat_map(|operation| ["--exclude-operation-id", operation]));
        good(&command.output().expect("scripts/install-tools installs it"), name);
    }
}
