//! The smallest service, for measuring the engine: `simple [PORT] [WORKERS]` answers
//! `{"message":"hi"}` to everything.

use forebay_http::{Answer, Gate, Head, Limits, Networks, Options, Outcome, Request, Server, Service};
use std::sync::Arc;

struct Simple {
    head: Head,
}

impl Service for Simple {
    fn call(&self, _request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        answer.respond(&self.head, br#"{"message":"hi"}"#);
        Outcome::Done
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |otherwise: u16| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (port, workers) = (number(3000), usize::from(number(1)));
    let options = Options {
        listen: vec![([127, 0, 0, 1], port).into()],
        workers,
        limits: Limits::default(),
        trusted: Networks::default(),
        tls: None,
    };
    let service = Arc::new(Simple { head: Head::new(200).content_type("application/json") });
    let server = Server::bind(options, service, Gate::new(workers))?;
    println!("{:?}", server.addresses()?);
    let stats = server.run(std::future::pending::<()>())?;
    println!("{:?}", stats.total());
    Ok(())
}
