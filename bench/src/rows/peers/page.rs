//! The table of all peers as one self-contained HTML page: no script, no network.

use std::fmt::Write;

/// A server's figures, route by route: CPU microseconds a request, and requests a second.
pub struct Server {
    /// The server's name.
    pub name: &'static str,
    /// The figures of each route, or why there are none.
    pub routes: Vec<Result<(f64, f64), String>>,
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1c2733;\
background:#fff}h1{font-size:1.4rem}h2{font-size:1rem;margin:1.6rem 0 .3rem}table{border-collapse:collapse;width:100%}\
td,th{padding:.15rem .5rem;text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}\
td.bar{width:45%;padding:0}td.bar div{background:#7aa7d6;height:.8rem}tr.own td.bar div{background:#2b6f4e}\
p.notes{white-space:pre-line;color:#556}@media(max-width:40rem){\
body{font-size:14px}td,th{padding:.15rem .25rem}tr{display:grid;grid-template-columns:1fr 6.4rem 5.7rem}\
td.bar,td.why{grid-column:1/-1;width:auto;padding:0 .25rem}th:last-child{display:none}td.why{text-align:left}}td.why{color:#556;white-space:normal}";

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page. Bars compare the CPU time that a route costs; those of Forebay stand out.
pub fn page(routes: &[String], servers: &[Server], machine: &str, notes: &str) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Forebay beside its peers</title><style>{STYLE}</style></head><body>\n\
         <h1>The codes routes, side by side</h1>\n<p>{}</p>\n<p class=\"notes\">{}</p>\n",
        escaped(machine),
        escaped(notes.trim())
    );
    for (place, route) in routes.iter().enumerate() {
        let cells = servers.iter().filter_map(|server| server.routes[place].as_ref().ok());
        let most = cells.map(|(cpu_us, _)| *cpu_us).fold(f64::MIN_POSITIVE, f64::max);
        // Writing into memory does not fail, here and below.
        let _ = write!(
            html,
            "<h2>{}</h2>\n<table><tr><th>server</th><th>cores/Mrps</th><th>requests/s</th><th></th></tr>\n",
            escaped(route)
        );
        for server in servers {
            let own = if server.name.starts_with("Forebay") { " class=\"own\"" } else { "" };
            let _ = match &server.routes[place] {
                Ok((cpu_us, rate_per_s)) => writeln!(
                    html,
                    "<tr{own}><td>{}</td><td>{cpu_us:.1}</td><td>{rate_per_s:.0}</td>\
                     <td class=\"bar\"><div style=\"width:{:.1}%\"></div></td></tr>",
                    escaped(server.name),
                    cpu_us / most * 100.0
                ),
                Err(why) => writeln!(
                    html,
                    "<tr{own}><td>{}</td><td colspan=\"3\" class=\"why\">{}</td></tr>",
                    escaped(server.name),
                    escaped(why)
                ),
            };
        }
        html += "</table>\n";
    }
    html + "</body></html>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_its_own() {
        let servers = [
            Server {
                name: "Forebay, embedded",
                routes: vec![Ok((5.0, 100_000.0)), Err("refused: <why>".into())],
            },
            Server { name: "Express", routes: vec![Ok((150.0, 6_000.0)), Ok((1.0, 2.0))] },
        ];
        let routes = ["GET /simple".to_owned(), "GET /<id>&".to_owned()];
        let html = page(&routes, &servers, "a machine", "some notes");
        for part in
            ["width:3.3%", "width:100.0%", "GET /&lt;id&gt;&amp;", "some notes", "&lt;why&gt;", "</html>"]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<script") && !html.contains("://"), "{html}");
    }
}
