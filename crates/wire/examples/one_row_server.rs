//! A server that answers each simple query with one row: the query's text and its length.
//!
//! Run `cargo run -p clearway-wire --example one_row_server`, then connect with
//! `psql -h 127.0.0.1 -p PORT -U anyone`.

use clearway_ir::Zone;
use clearway_ir::statement::OutColumn;
use clearway_types::row::encode;
use clearway_types::{Datum, RowView, SqlError, SqlType};
use clearway_wire::backend::{self, Severity};
use clearway_wire::startup::{EncryptionRequests, startup};
use clearway_wire::{ColumnFormat, Format, Frontend, Startup, frame, row};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Largest accepted message, in bytes.
const MAX_MESSAGE: usize = 1 << 20;

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        if let Err(e) = serve(stream?) {
            eprintln!("connection failed: {e}");
        }
    }
    Ok(())
}

/// Appends received bytes; returns false at the end of the stream.
fn receive(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; 4096];
    let n = stream.read(&mut chunk)?;
    input.extend_from_slice(&chunk[..n]);
    Ok(n > 0)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut input = Vec::new();
    if !log_in(&mut stream, &mut input)? {
        return Ok(());
    }
    loop {
        let Some(message) = frame(&input, MAX_MESSAGE).map_err(io::Error::other)? else {
            if !receive(&mut stream, &mut input)? {
                return Ok(());
            }
            continue;
        };
        let mut out = Vec::new();
        match Frontend::decode(message.tag, &input[5..message.len]) {
            Ok(Frontend::Terminate) => return Ok(()),
            Ok(Frontend::Query(sql)) => answer(sql, &mut out),
            Ok(_) => {
                let error = SqlError::unsupported("the extended protocol");
                backend::error(&mut out, Severity::Error, &error);
            }
            Err(error) => backend::error(&mut out, Severity::Error, &error),
        }
        backend::ready_for_query(&mut out, b'I');
        stream.write_all(&out)?;
        input.drain(..message.len);
    }
}

/// Handles the packets before a session; returns false if no session begins.
fn log_in(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<bool> {
    let mut asked = EncryptionRequests::default();
    loop {
        let (begins, len, out) = match startup(input, asked) {
            Ok(None) => (false, 0, Vec::new()),
            Ok(Some(Ok((Startup::Ssl, len)))) => {
                asked.ssl = true;
                (false, len, b"N".to_vec())
            }
            Ok(Some(Ok((Startup::Gss, len)))) => {
                asked.gss = true;
                (false, len, b"N".to_vec())
            }
            Ok(Some(Ok((Startup::Session { .. }, len)))) => {
                let mut out = Vec::new();
                backend::authentication_ok(&mut out);
                backend::parameter_status(&mut out, "server_version", "15.0");
                backend::parameter_status(&mut out, "client_encoding", "UTF8");
                backend::ready_for_query(&mut out, b'I');
                (true, len, out)
            }
            _ => return Ok(false),
        };
        if len == 0 && !receive(stream, input)? {
            return Ok(false);
        }
        stream.write_all(&out)?;
        input.drain(..len);
        if begins {
            return Ok(true);
        }
    }
}

/// Appends a result with one row.
fn answer(sql: &str, out: &mut Vec<u8>) {
    let columns =
        [OutColumn::computed("query", SqlType::Text), OutColumn::computed("length", SqlType::Int8)];
    let format = |column: &OutColumn| ColumnFormat { ty: column.ty, format: Format::Text };
    let mut values = Vec::new();
    encode(&[Datum::from(sql), Datum::Int8(sql.len() as i64)], &mut values);
    row::row_description(out, columns.iter().map(|column| (column, format(column))));
    let written =
        row::data_row(out, RowView::new(&values), columns.iter().map(format), &Zone::utc());
    assert!(written.is_ok(), "an encoded row is valid");
    backend::command_complete_count(out, "SELECT", 1);
}
