//! Answers as servers send them, and as they should not.

use std::os::unix::net::UnixListener;

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
