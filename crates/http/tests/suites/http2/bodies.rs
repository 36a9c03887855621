//! Request bodies: passed on as they arrive, bounded, and never truncated without an error.

use super::*;

#[test]
fn a_body_that_breaks_off_is_never_taken_for_a_whole_one() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        for path in ["/breaks/70000", "/breaks/0", "/breaks-chunks/70000", "/overflows/5", "/stream-panic"] {
            let answer = ask(&mut requests, Method::GET, path).await;
            assert!(answer.ends_with("Some(INTERNAL_ERROR)"), "{path}: {answer}");
        }
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
    });
}

#[test]
fn bodies_are_streamed_to_services_that_read_them() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        let size = 8 << 20;
        let expected = |length: &str| format!("200 ({size}, {}) {length}", size * 7);
        let body = vec![7; size];
        let with_length = |path: &str, length: usize| {
            let mut request = request(Method::POST, path);
            request.headers_mut().insert("content-length", length.into());
            request
        };
        assert_eq!(
            post(&mut requests, request(Method::POST, "/upload"), body.clone()).await,
            expected("None")
        );
        let announced = with_length("/upload", size);
        assert_eq!(post(&mut requests, announced, body).await, expected(&format!("Some({size})")));
        let small = |count: usize| vec![b'x'; count];
        let over = post(&mut requests, request(Method::POST, "/upload-small"), small(1001)).await;
        assert_eq!(over, "413 the request body is too large");
        let over = post(&mut requests, with_length("/upload-small", 1001), small(1001)).await;
        assert_eq!(over, "413 the request body is too large");
        assert_eq!(
            post(&mut requests, request(Method::POST, "/ignore"), small(1 << 20)).await,
            "200 ignored"
        );
        server.signal.send_replace(1);
        let ignored = post(&mut requests, request(Method::POST, "/ignore-later/1"), small(1 << 20)).await;
        assert_eq!(ignored, "200 later 1");
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
    });
}

#[test]
fn a_reader_that_waits_holds_its_client_back() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        let mut asked = requests.clone();
        let size = 4 << 20;
        let upload = tokio::spawn(async move {
            post(&mut asked, request(Method::POST, "/upload-later/1"), vec![1; size]).await
        });
        let mut last = 0;
        // The windows and the pipe fill up; then nothing more is read.
        loop {
            let before = std::mem::replace(&mut last, server.stats.total().read_bytes);
            tokio::time::sleep(Duration::from_millis(50)).await;
            if last > 100_000 && last == before {
                break;
            }
        }
        assert!(last < 1 << 20, "{last} bytes were read");
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
        server.signal.send_replace(1);
        assert_eq!(upload.await.expect("no panic"), format!("200 ({size}, {size}) None"));
    });
}

#[test]
fn bodies_that_are_read_whole_have_limits() {
    let server = TestServer::start(Limits { body_bytes: 10, ..Limits::default() }, 1);
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        for (size, expected) in
            [(10, "200 POST /echo [xxxxxxxxxx]"), (11, "413 the request body is too large")]
        {
            let answer = post(&mut requests, request(Method::POST, "/echo"), vec![b'x'; size]).await;
            assert_eq!(answer, expected);
        }
        let mut announced = request(Method::POST, "/echo");
        announced.headers_mut().insert("content-length", 11.into());
        let (response, _send) = requests.send_request(announced, false).expect("a request");
        let answer = shown(response.await.expect("an answer")).await;
        assert_eq!(answer, "413 the request body is too large", "before it was sent");
        let mut expecting = request(Method::POST, "/echo");
        expecting.headers_mut().insert("expect", "100-continue".parse().expect("a value"));
        assert_eq!(post(&mut requests, expecting, b"abc".to_vec()).await, "200 POST /echo [abc]");
    });
}

#[test]
fn many_bodies_at_one_time_are_bounded() {
    let limits = Limits { bodies_bytes: 4 << 20, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    run(async {
        let (requests, _driving) = connect(&server).await;
        // Each body has sent a megabyte less one byte, and none ends.
        let mut open = Vec::new();
        for _ in 0..20 {
            let mut requests = requests.clone().ready().await.expect("room");
            let (response, mut send) =
                requests.send_request(request(Method::POST, "/echo"), false).expect("a request");
            let sending = tokio::spawn(async move {
                let mut left = (1 << 20) - 1;
                while left > 0 {
                    send.reserve_capacity(left);
                    match std::future::poll_fn(|cx| send.poll_capacity(cx)).await {
                        Some(Ok(count)) => {
                            let count = count.min(left);
                            if send.send_data(vec![b'x'; count].into(), false).is_err() {
                                return;
                            }
                            left -= count;
                        }
                        _ => return,
                    }
                }
                // Until the stream is reset, or the test ends.
                let _reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
            });
            open.push((response, sending));
        }
        let mut refused = 0;
        for (response, sending) in open {
            match tokio::time::timeout(Duration::from_millis(300), response).await {
                Ok(Ok(response)) => {
                    assert_eq!(response.status(), 503);
                    refused += 1;
                }
                Ok(Err(error)) => panic!("{error}"),
                Err(_) => {}
            }
            sending.abort();
        }
        assert!((15..20).contains(&refused), "{refused} of 20, where four fit");
    });
}

#[test]
fn slow_bodies_and_clients_that_do_not_read_cost_their_stream() {
    let limits = Limits { head_timeout_ms: 300, write_timeout_ms: 300, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    run(async {
        let (mut requests, _driving) =
            connect_as(&server, h2::client::Builder::new().initial_window_size(0)).await;
        let (response, mut send) =
            requests.send_request(request(Method::POST, "/upload"), false).expect("a request");
        send.send_data("abc".into(), false).expect("a window");
        let (head, mut body) = response.await.expect("an answer").into_parts();
        assert_eq!(head.status, 408);
        // The window has no room for the error's body.
        let error = body.data().await.expect("something").expect_err("a reset");
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        let (response, _send) =
            requests.send_request(request(Method::POST, "/echo"), false).expect("a request");
        assert_eq!(response.await.expect("an answer").status(), 408);
    });
}
