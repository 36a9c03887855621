//! Bytes sent over connections to a port of this machine, as counted by the kernel.

use std::error::Error;
use std::process::Command;

/// The bytes that all clients of that port have sent and received so far, from `ss` (iproute2).
/// Closed connections do not count.
pub fn bytes_with(port: u16) -> Result<f64, Box<dyn Error>> {
    let output = Command::new("ss")
        .args(["-tinH", "state", "established", "dport", "=", &format!(":{port}")])
        .output()
        .map_err(|error| format!("ss: {error}; install iproute2 to count bytes"))?;
    crate::process::succeeded(&output)?;
    Ok(bytes_in(&String::from_utf8_lossy(&output.stdout)))
}

fn bytes_in(text: &str) -> f64 {
    let counted = |word: &str| -> Option<f64> {
        word.strip_prefix("bytes_sent:").or_else(|| word.strip_prefix("bytes_received:"))?.parse().ok()
    };
    text.split_whitespace().filter_map(counted).sum()
}

#[cfg(test)]
mod tests {
    use super::bytes_in;

    #[test]
    fn both_directions_of_all_connections() {
        let text = "0 0 127.0.0.1:40000 127.0.0.1:5432\n\t cubic rto:204 bytes_sent:10 bytes_acked:9 bytes_received:200 segs_out:3\n\
                    0 0 127.0.0.1:40002 127.0.0.1:5432\n\t cubic bytes_sent:1 bytes_acked:2\n";
        assert_eq!(bytes_in(text), 211.0);
    }
}
