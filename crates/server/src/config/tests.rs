//! The config, from the outside: files in, models or messages out.

use super::*;

fn none(_: &str) -> Option<String> {
    None
}

#[test]
fn every_example_loads() {
    for (name, text) in BUNDLED {
        match parse(name, text, &Overrides::default(), &none) {
            Ok(config) => println!("{name}\n{}", explain(&config)),
            Err(errors) => panic!("{errors}"),
        }
    }
}
