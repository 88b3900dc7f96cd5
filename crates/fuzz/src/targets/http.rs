//! A request for metrics. Any input gets a complete response, or more input is awaited up to a
//! limit. Bytes after a complete request do not change the response.

use clearway_server::metrics::http::{MAX_HEAD, answer};

const PAGE: &str = "clearway_sessions 1\n";

pub(super) fn run(data: &[u8]) {
    let Some(response) = answer(data, || PAGE.to_owned()) else {
        assert!(data.len() < MAX_HEAD, "a request beyond the limit waits for more");
        return;
    };
    let text = String::from_utf8(response.clone()).expect("an answer is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status =
        head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..4)).expect("a status line");
    assert!(["200 ", "400 ", "404 ", "405 ", "431 "].contains(&status), "{head}");
    let length =
        head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    assert!(body.is_empty() || length.parse() == Ok(body.len()), "{text}");
    assert!(body != PAGE || status == "200 ");
    if status == "200 " {
        let more = [data, b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(answer(&more, || PAGE.to_owned()), Some(response));
    }
}
