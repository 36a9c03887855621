//! The page: one table form for all sections, in Markdown.

use super::figure::{Cell, Figure, Measured};
use super::programs::jdk;
use crate::machine;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Width of a document's lines, tables apart.
const COLUMNS: usize = 98;

/// How busy cores may be in extrapolations.
const UTILISATION: f64 = 0.7;

const HEAD: &str = "\
The documents that Forebay comes from tell figures: a million requests a second, a million a minute, \
10,000 users, what one small machine can take. Here they stand as published, beside the same programs' \
kind run on one machine, and Forebay's in the same run: each once, in turn, after a warm-up, 64 \
connections unless a section says otherwise.

CPU time is in microseconds a request, user and system, of the server and of the stores behind it, which is \
the same number as cores for a million requests a second; the rate stands beside it. The ratio is \
their CPU time by ours. The last column says how many cores either takes at the rate that \
is named there, *theirs · ours*, each core 70 % busy, if a request costs on many cores and machines what it \
costs on this one. It leaves out what one machine cannot show: the network card, the distance between \
machines, locks between many cores, and a database that is at its limit. Where answers are large, it says what the \
network has to carry.";

/// The cited sources, in the order of their numbers.
const SOURCES: &[&str] = &[
    "Cododev, *Let's Handle 1 Million Requests per Second, It's Scarier Than You Think!*, a video, \
     <https://youtu.be/W4EwfEU8CGA>, by its transcript. Express, Fastify and Cpeak on a Mac Studio of 12 cores; servers of 128 \
     cores with 50 Gbit/s and of 192 with 600, PostgreSQL on 64.",
    "Dreams of Code, *There's more than one way to scale Redis/Valkey to 1M op/s*, a video, \
     <https://www.youtube.com/watch?v=uptpnVdwFM4>.",
    "B. Igor, *How many HTTP requests/second can a Single Machine handle?*, 2024-03-28, \
     <https://binaryigor.com/how-many-http-requests-can-a-single-machine-handle.html>, and the README of its tests, whose run is the \
     other one. Spring Boot 3 on Java 21 and PostgreSQL share the machine; latencies of one of four testers.",
    "J. Langel, *busyapi*, an answer to a task of that name, <https://github.com/JonMLangel/busyapi>.",
    "*How I Handled 10k Concurrent Users!*, an article about a page of live streams (Nuxt, Fastify, PostgreSQL, Redis).",
];

/// The page, while it is written.
pub struct Page {
    /// The path of the page, relative to the repository's root.
    path: &'static str,
    text: String,
}

impl Page {
    /// Its head: when, where, by which command.
    pub fn new(quick: bool, sections: &[String]) -> Result<Page, Box<dyn Error>> {
        let date = printed("date", &["-u", "+%Y-%m-%d"])?;
        let commit = printed("git", &["rev-parse", "--short", "HEAD"])?;
        let command = if quick { "make seeds QUICK=--quick" } else { "make seeds" };
        let mut text = String::from("# The seeds, replayed\n\n");
        let place = format!("`{command}` on {date}, commit {commit}: {}.", machine::describe());
        text += &wrapped(&place);
        text += &wrapped(&format!("{}.", versions().join("; ")));
        if quick {
            text += &wrapped("**Short cells, to see that everything works: not to be quoted.**");
        }
        HEAD.split("\n\n").for_each(|paragraph| text += &wrapped(paragraph));
        let whole = !quick && sections.is_empty();
        Ok(Page { path: if whole { "docs/seeds.md" } else { "bench/results/seeds.md" }, text })
    }

    /// Adds a section, and prints its table.
    ///
    /// `busy`: which part of a core something else used when it began.
    pub fn section(
        &mut self,
        title: &str,
        about: &str,
        busy: Option<f64>,
        figures: Result<Vec<Figure>, String>,
    ) {
        self.text += &format!("## {title}\n\n{}", wrapped(about));
        if let Some(share) = busy {
            let what = format!("Not to be quoted: something else used {:.0} % of a core.", share * 100.0);
            println!("  {what}");
            self.text += &wrapped(&format!("**{what}**"));
        }
        match figures {
            Ok(figures) => {
                let table = table(&figures);
                println!("{table}");
                self.text += &table;
                let reasons = figures.iter().flat_map(|figure| [&figure.theirs, &figure.ours]);
                let reasons: BTreeSet<&String> = reasons.filter_map(|cell| cell.as_ref().err()).collect();
                for reason in reasons {
                    println!("  – {reason}");
                    self.text += &wrapped(&format!("–: {reason}."));
                }
            }
            Err(reason) => {
                println!("  not measured: {reason}");
                self.text += &wrapped(&format!("Not measured: {reason}."));
            }
        }
    }

    /// Writes it below the repository's root.
    pub fn keep(mut self, root: &Path) -> Result<(), Box<dyn Error>> {
        self.text += "## Sources\n\n";
        for (number, source) in SOURCES.iter().enumerate() {
            self.text += &wrapped(&format!("[{}] {source}", number + 1));
        }
        let path = root.join(self.path);
        fs::create_dir_all(path.parent().ok_or("a page has a folder")?)?;
        fs::write(&path, format!("{}\n", self.text.trim_end()))?;
        println!("\nkept in {}", path.display());
        Ok(())
    }
}

fn printed(program: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new(program).args(arguments).current_dir(forebay_tests::root()).output()?;
    crate::process::succeeded(&output)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The versions of the peers' runtimes: the first line that each program prints.
fn versions() -> Vec<String> {
    let java = jdk("java");
    let programs = [
        ("node", "--version"),
        (&java, "--version"),
        ("go", "version"),
        ("psql", "--version"),
        ("redis-server", "--version"),
    ];
    let version = |(program, argument): (&str, &str)| {
        let name = program.rsplit('/').next().unwrap_or(program);
        match printed(program, &[argument]) {
            Ok(text) => format!("{name}: {}", text.lines().next().unwrap_or_default()),
            Err(_) => format!("{name}: not there"),
        }
    };
    programs.map(version).into()
}

/// A paragraph, broken between words.
fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += width;
    }
    text + "\n\n"
}

/// Three significant digits, with thousands separators.
fn number(value: f64) -> String {
    let digits = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

fn shown(cell: &Cell) -> String {
    let Ok(measured) = cell else { return "–".into() };
    let beside = if measured.beside.is_empty() { String::new() } else { format!("; {}", measured.beside) };
    format!("{} µs, {}/s{beside}", number(measured.cpu_us), number(measured.rate_per_s))
}

/// The number of cores for a rate.
fn cores(measured: &Measured, rate_per_s: f64) -> f64 {
    measured.cpu_us * rate_per_s / 1e6 / UTILISATION
}

fn extrapolated(figure: &Figure) -> String {
    let cores =
        |cell: &Cell| cell.as_ref().map_or_else(|_| "–".into(), |of| number(cores(of, figure.wanted_per_s)));
    let bytes = figure.ours.as_ref().or(figure.theirs.as_ref()).map_or(0.0, |measured| measured.bytes);
    let gigabits = bytes * 8.0 * figure.wanted_per_s / 1e9;
    let network = if gigabits >= 10.0 { format!("; {} Gbit/s", number(gigabits)) } else { String::new() };
    let wanted = number(figure.wanted_per_s);
    format!("{wanted}/s: {} · {} cores{network}", cores(&figure.theirs), cores(&figure.ours))
}

fn table(figures: &[Figure]) -> String {
    let mut text = String::from(
        "| what | theirs, published | theirs, here | Forebay, here | ratio | extrapolated |\n\
         |---|---|---|---|---|---|\n",
    );
    for figure in figures {
        let ratio = match (&figure.theirs, &figure.ours) {
            (Ok(theirs), Ok(ours)) if ours.cpu_us > 0.0 => {
                format!("{} ×", number(theirs.cpu_us / ours.cpu_us))
            }
            _ => "–".into(),
        };
        let (theirs, ours) = (shown(&figure.theirs), shown(&figure.ours));
        text += &format!(
            "| {} | {} | {theirs} | {ours} | {ratio} | {} |\n",
            figure.what,
            figure.published,
            extrapolated(figure)
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(cpu_us: f64, bytes: f64) -> Measured {
        Measured { cpu_us, rate_per_s: 12_345.6, bytes, beside: String::new() }
    }

    #[test]
    fn numbers_have_thousands_apart() {
        for (value, text) in
            [(0.5, "0.50"), (12.34, "12.3"), (999.6, "1,000"), (1_234_567.0, "1,234,567"), (100.0, "100")]
        {
            assert_eq!(number(value), text);
        }
    }

    /// 192 cores 70 % busy for 1,000,000/s are 134.4 µs a request; 32,499 bytes of it are 260 Gbit/s.
    #[test]
    fn known_arithmetic() {
        let figure = Figure {
            what: "PATCH".into(),
            published: "not known",
            theirs: Err("it is not there".into()),
            ours: Ok(measured(134.4, 32_499.0)),
            wanted_per_s: 1e6,
        };
        assert_eq!(extrapolated(&figure), "1,000,000/s: – · 192 cores; 260 Gbit/s");
        let row =
            "| PATCH | not known | – | 134 µs, 12,346/s | – | 1,000,000/s: – · 192 cores; 260 Gbit/s |\n";
        assert!(table(&[figure]).contains(row));
    }

    #[test]
    fn paragraphs_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS));
        assert_eq!(text.split_whitespace().count(), 50);
    }
}
