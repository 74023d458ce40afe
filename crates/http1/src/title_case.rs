//! Names of headers with capital letters, for clients that compare them with regard to case.

/// Writes the names in a head with a capital at the start of each word: `Content-Type` in place of `content-type`. The head is one
/// that this crate has written: a start line, lines `name: value`, and an empty line.
pub fn title_case(head: &mut [u8]) {
    for line in head.split_inclusive_mut(|byte| *byte == b'\n').skip(1) {
        let mut starts_word = true;
        for byte in line.iter_mut().take_while(|byte| **byte != b':') {
            if starts_word {
                byte.make_ascii_uppercase();
            }
            starts_word = *byte == b'-';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_name_has_a_capital() {
        let mut head =
            b"HTTP/1.1 200 all-good\r\ncontent-type: text/html-x\r\netag: \"a:b-c\"\r\nx-1-a_b: c-d\r\n\r\n"
                .to_vec();
        title_case(&mut head);
        let expected =
            "HTTP/1.1 200 all-good\r\nContent-Type: text/html-x\r\nEtag: \"a:b-c\"\r\nX-1-A_b: c-d\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), expected);
    }
}
