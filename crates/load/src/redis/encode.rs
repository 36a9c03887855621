//! Commands in RESP.

/// One command: an array of bulk strings.
pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let text = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(text).collect::<String>()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_list_of_texts() {
        assert_eq!(command(&["AUTH", "é"]), "*2\r\n$4\r\nAUTH\r\n$2\r\né\r\n".as_bytes());
    }
}
