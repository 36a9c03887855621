//! `forebay init`: a commented config for the tables of a database. Creates nothing in the
//! database.

use crate::cli::Init;
use crate::failure::Failure;
use crate::start::runtime;
use forebay_config::draft::{DatabaseTable, URL_VARIABLE, draft};
use forebay_database::{Error, Follow, Options, Store};
use forebay_terminal::{answer, say};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(args: &Init) -> Result<ExitCode, Failure> {
    let url = absolute(&args.url)?;
    let tables = runtime()?.block_on(tables(&url)).map_err(Failure::from)?;
    if tables.is_empty() {
        return Err("the database has no tables; `forebay serve --example codes` makes its own".into());
    }
    let text = draft(&url, &tables);
    if args.output == Path::new("-") {
        answer!("{}", text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    write(&args.output, &text)?;
    let served = tables.iter().filter(|table| table.schema.is_ok()).count();
    say!("wrote {}: {served} of {} tables are served from memory", args.output.display(), tables.len());
    if text.contains(&format!("${{{URL_VARIABLE}}}")) {
        say!("it reads the URL from the environment: export {URL_VARIABLE}=…");
    }
    Ok(ExitCode::SUCCESS)
}

/// The config names a SQLite file by its absolute path: a relative one would be resolved in the data
/// folder.
fn absolute(url: &str) -> Result<String, Failure> {
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(url.to_owned()) };
    let path = std::path::absolute(path.strip_prefix("//").unwrap_or(path)).map_err(Failure::from)?;
    if !path.exists() {
        return Err(format!("there is no file {}", path.display()).into());
    }
    Ok(format!("sqlite:{}", path.display()))
}

async fn tables(url: &str) -> Result<Vec<DatabaseTable>, Error> {
    let store = Store::open(url, Options::default())?;
    let mut tables = Vec::new();
    for name in store.tables().await? {
        let schema = match store.describe(&name).await {
            Ok(Some(schema)) => {
                let follow = Follow { schema: Arc::new(schema.clone()), old: Vec::new(), own: false };
                store.cannot_follow(follow).await?.map_or(Ok(schema), |why| Err(why.into()))
            }
            // The table was dropped while the others were read.
            Ok(None) => continue,
            Err(error) if error.may_retry() => return Err(error),
            Err(error) => Err(error.to_string().into()),
        };
        tables.push(DatabaseTable { name, schema });
    }
    Ok(tables)
}

/// Writes a new file; an existing one is an error.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::from(format!(
            "{} is there already; name another file by -o, or print by -o -",
            path.display()
        )),
        _ => Failure::from(format!("cannot write {}: {error}", path.display())),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
