//! The part of HTTP that a scraper needs: one request per connection, answered and closed.
//!
//! A request's body is not read; the request is answered anyway.
//!
//! Source: RFC 9112.

use httparse::{EMPTY_HEADER, Request, Status};

/// Maximum length of a request up to its empty line, in bytes.
pub const MAX_HEAD: usize = 8 << 10;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 64;
/// The content type of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Returns the answer to the bytes received so far; `None` while the request is incomplete. `page`
/// produces the metrics.
pub fn answer(received: &[u8], page: impl FnOnce() -> String) -> Option<Vec<u8>> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    let parsed = match request.parse(received) {
        Ok(Status::Partial) if received.len() < MAX_HEAD => return None,
        Ok(Status::Complete(head)) if head <= MAX_HEAD => Ok(()),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            Err(("431 Request Header Fields Too Large", "request too long\n"))
        }
        Err(_) => Err(("400 Bad Request", "not an HTTP request\n")),
    };
    if let Err((status, text)) = parsed {
        return Some(response(status, PLAIN, "", text, true));
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let whole = request.method != Some("HEAD");
    Some(match (request.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => response("200 OK", TEXT_FORMAT, "", &page(), whole),
        (Some("GET" | "HEAD"), _) => {
            response("404 Not Found", PLAIN, "", "only /metrics is served\n", whole)
        }
        _ => response(
            "405 Method Not Allowed",
            PLAIN,
            "Allow: GET, HEAD\r\n",
            "only GET /metrics is served\n",
            true,
        ),
    })
}

fn response(status: &str, content_type: &str, more: &str, body: &str, whole: bool) -> Vec<u8> {
    let length = body.len();
    let body = if whole { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(request: &str) -> String {
        String::from_utf8(answer(request.as_bytes(), || "page\n".to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn get_returns_the_page_and_head_its_length() {
        let page = answered("GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"),
            "{page}"
        );
        assert!(
            page.contains("\r\nContent-Length: 5\r\n") && page.ends_with("\r\n\r\npage\n"),
            "{page}"
        );
        let head = answered("HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("\r\nContent-Length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn other_requests_are_refused() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
            ("\u{0}\r\n\r\n", "400"),
            ("GET /metrics HTTP/9.9\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400"),
        ] {
            assert!(
                answered(request).starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:?}: {}",
                answered(request)
            );
        }
        let fields = "a: b\r\n".repeat(MAX_FIELDS + 1);
        assert!(
            answered(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n"))
                .starts_with("HTTP/1.1 431 ")
        );
        let long = "x".repeat(MAX_HEAD);
        assert!(answered(&format!("GET /{long}")).starts_with("HTTP/1.1 431 "));
        assert!(
            answered(&format!("GET /metrics HTTP/1.1\r\na: {long}\r\n\r\n"))
                .starts_with("HTTP/1.1 431 ")
        );
    }

    #[test]
    fn incomplete_request_gets_no_answer_yet() {
        let request = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(answer(&request.as_bytes()[..end], String::new), None);
        }
    }
}
