//! The driver from the command line, for a quick look:
//! `drive HOST:PORT /target [connections] [pipelining] [seconds] [method] [body]`.
//!
//! The load tester with its flags is a later part; this prints one line.

use forebay_load::{Fixed, Settings, Stop, run};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, target, rest @ ..] = arguments.as_slice() else {
        return Err(
            "usage: drive HOST:PORT /target [connections] [pipelining] [seconds] [method] [body]".into()
        );
    };
    let number = |place: usize, default: u64| rest.get(place).map_or(Ok(default), |text| text.parse());
    let seconds = number(2, 5)?;
    let settings = Settings {
        connections: usize::try_from(number(0, 64)?)?,
        pipelining: usize::try_from(number(1, 1)?)?,
        ..Settings::new(address.parse()?, Stop::After(Duration::from_secs(seconds)))
    };
    let method = rest.get(3).map_or("GET", String::as_str);
    let mut traffic = Fixed::new(method, target, rest.get(4).map(String::as_bytes));
    println!("{}", run(&settings, &mut traffic)?);
    Ok(())
}
