//! Responses that servers send, and malformed ones.

use std::os::unix::net::UnixListener;

use super::reply::read_line;
use super::*;

fn read(text: &str) -> io::Result<(u16, Vec<u8>)> {
    read_reply(&mut text.as_bytes())
}

#[test]
fn bodies_with_length_chunks_and_close_are_read() {
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhixx";
    assert_eq!(read(length).unwrap(), (200, b"hi".to_vec()));
    let chunks =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n1;x\r\n!\r\n0\r\n\r\n";
    assert_eq!(read(chunks).unwrap(), (200, b"hi!".to_vec()));
    assert_eq!(
        read("HTTP/1.1 404 No\r\n\r\nrest").unwrap(),
        (404, b"rest".to_vec())
    );
    assert_eq!(
        read("HTTP/1.1 204 No Content\r\n\r\n").unwrap(),
        (204, Vec::new())
    );
}

#[test]
fn lines_of_a_stream_come_beyond_the_bound_of_bodies() {
    let line = format!("{}\n", "x".repeat(200_000));
    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\
         transfer-encoding: chunked\r\n\r\n{}2\r\na\n\r\n0\r\n\r\n",
        chunk.repeat(100)
    );
    assert!(text.len() > reply::REPLY_BYTES_MAX);
    let lines_of = |text: &str, count_max: usize| {
        let mut lengths = Vec::new();
        let read = reply::read_stream(&mut text.as_bytes(), &mut |line| {
            lengths.push(line.len());
            if lengths.len() == count_max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        (read, lengths)
    };
    let (read, lengths) = lines_of(&text, usize::MAX);
    assert!(matches!(read, Ok(StreamReply::Lines)));
    assert_eq!(lengths, [vec![200_000; 100], vec![1]].concat());
    assert_eq!(lines_of(&text, 3).1.len(), 3);
    // One that breaks off, one with a line that is too long, and one that is no stream.
    assert!(lines_of(&text[..text.len() - 20], usize::MAX).0.is_err());
    let long = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n{}",
        "x".repeat(reply::STREAM_LINE_BYTES_MAX + 10)
    );
    assert!(lines_of(&long, usize::MAX).0.is_err());
    let whole = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[1]";
    let (read, lengths) = lines_of(whole, usize::MAX);
    assert!(matches!(read, Ok(StreamReply::Whole(200, body)) if body == b"[1]"));
    assert_eq!(lengths, Vec::<usize>::new());
}

#[test]
fn broken_answers_are_errors() {
    for bad in [
        "",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nhi",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nhi\r\n",
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
    assert!(read(&format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(65))).is_err());
    assert!(read(&format!("HTTP/1.1 200 {}", "x".repeat(9000))).is_err());
}

#[test]
fn refusals_carry_the_words_of_the_node() {
    let path = std::env::temp_dir().join(format!("carina-api-client-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let first = read_line(&mut reader).unwrap();
        while !read_line(&mut reader).unwrap().is_empty() {}
        let body = r#"{"error":{"code":"not-found","message":"no IPCP is named a b"}}"#;
        let text = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        reader.get_mut().write_all(text.as_bytes()).unwrap();
        first
    });
    let refusal = Client::new(&path).destroy_ipcp("a b").unwrap_err();
    assert_eq!(server.join().unwrap(), "DELETE /v1/ipcps/a%20b HTTP/1.1");
    assert!(
        matches!(refusal, ClientError::Refused { status: 404, .. }),
        "{refusal}"
    );
    assert_eq!(refusal.to_string(), "no IPCP is named a b (not-found)");
    std::fs::remove_file(&path).unwrap();
    let refusal = Client::new(&path).node().unwrap_err().to_string();
    assert!(
        refusal.contains("start one with `carina node`"),
        "{refusal}"
    );
}

#[test]
fn node_that_does_not_answer_is_reported_with_the_request() {
    let directory = std::env::temp_dir().join(format!("carina-silent-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("control.sock");
    // The listener never accepts: connections stay in its queue, as with a stopped process.
    let _listener = UnixListener::bind(&path).unwrap();
    let client = Client::new(&path).with_answer_limit(Duration::from_millis(50));
    let error = client.ipcps().unwrap_err();
    assert!(matches!(error, ClientError::Silent { .. }), "{error:?}");
    let words = error.to_string();
    assert!(
        words.contains("GET /v1/ipcps") && words.contains("0.05 s"),
        "{words}"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn answer_that_trickles_ends_at_the_deadline() {
    let (stream, mut node) = UnixStream::pair().unwrap();
    let until = Instant::now() + Duration::from_millis(100);
    let writer = std::thread::spawn(move || {
        // The server sends one byte at a time for longer than the limit, without any long pause.
        while Instant::now() < until + Duration::from_millis(100) {
            if node.write_all(b"x").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut answer = Answer { stream, until };
    let error = answer.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        ),
        "{error}"
    );
    drop(answer);
    writer.join().unwrap();
}
