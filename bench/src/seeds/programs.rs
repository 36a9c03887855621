//! The peers that are built into `target/peers`.

use crate::process::Peer;
use crate::rows::peers::stores::free_address;
use forebay_tests::root;
use std::error::Error;
use std::process::Command;

/// A peer on PostgreSQL.
#[derive(Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    /// Below `target/peers`.
    file: &'static str,
    /// The interpreter of the file, when it is not executable.
    run_by: &'static [&'static str],
}

pub const SPRING: Program =
    Program { name: "Spring Boot", file: "spring/spring.jar", run_by: &["java", "-jar"] };
pub const GO: Program = Program { name: "Go", file: "go-server", run_by: &[] };
/// Nothing here builds it: `peers/README.md` says how to build it.
pub const DROGON: Program = Program { name: "Drogon with RapidJSON", file: "drogon", run_by: &[] };

/// Where `scripts/install-peers` puts something.
pub fn installed(file: &str) -> Result<String, String> {
    let path = root().join("target/peers").join(file);
    match path.exists() {
        true => Ok(path.display().to_string()),
        false => Err(format!("target/peers/{file} is not there: see peers/README.md")),
    }
}

impl Program {
    /// Starts it on a database.
    pub fn start(self, postgres: &str) -> Result<Peer, Box<dyn Error>> {
        let (file, address) = (installed(self.file)?, free_address()?);
        let mut command = match self.run_by {
            [] => Command::new(file),
            [program, arguments @ ..] => {
                let mut command = Command::new(jdk(program));
                command.args(arguments).arg(file);
                command
            }
        };
        // JDBC takes the user as a parameter.
        let (user, rest) = postgres
            .strip_prefix("postgres://")
            .and_then(|rest| rest.split_once('@'))
            .ok_or("the URL of PostgreSQL names no user")?;
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let sign = if rest.contains('?') { '&' } else { '?' };
        command
            .env("HOST", address.ip().to_string())
            .env("PORT", address.port().to_string())
            .env("DATABASE_URL", postgres)
            .env("JDBC_URL", format!("jdbc:postgresql://{rest}{sign}user={user}&password={password}"));
        Ok(Peer::serve(self.name, command, address)?)
    }
}

/// A program of the JDK that `JAVA_HOME` names, else the one in the path.
pub fn jdk(program: &str) -> String {
    match std::env::var("JAVA_HOME") {
        Ok(home) if !home.is_empty() => format!("{home}/bin/{program}"),
        _ => program.to_owned(),
    }
}
