//! Small HTTP reads: one GET on a connection of its own, bounded in time.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a GET that must be answered with 200.
///
/// # Errors
/// When it is not, within five seconds.
pub async fn get(target: SocketAddr, path: &str) -> Result<String> {
    let (status, body) = tokio::time::timeout(TIMEOUT, exchange(target, path))
        .await
        .with_context(|| format!("http://{target}{path} takes too long"))?
        .with_context(|| format!("http://{target}{path}"))?;
    ensure!(status == StatusCode::OK, "http://{target}{path} answers {status}: {body}");
    Ok(body)
}

async fn exchange(target: SocketAddr, path: &str) -> Result<(StatusCode, String)> {
    let stream = TcpStream::connect(target).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(header::HOST, target.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (answer, _) = tokio::join!(answer, connection);
    answer
}
