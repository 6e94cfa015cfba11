//! RESP2, as much of it as a test needs: write a command, read a reply.
//!
//! The kit speaks it itself so that what a test sees of a server does not pass through the client
//! library that the code under test uses.

use std::io::{self, BufRead, Error, ErrorKind, Read, Write};

/// Longer than anything a test stores; it only keeps a garbled length from asking for the moon.
const BYTES_MAX: i64 = 64 << 20;

/// What a server answered. Text that is not UTF-8 is read with replacement characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// An integer.
    Int(i64),
    /// A status (`OK`) or a value.
    Text(String),
    /// A list; of a hash, fields and values in turn.
    List(Vec<Reply>),
    /// A refusal, its code word first.
    Error(String),
}

impl Reply {
    /// The integer, if it is one.
    pub fn int(&self) -> Option<i64> {
        if let Reply::Int(n) = self { Some(*n) } else { None }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Reply::Text(text) = self { Some(text) } else { None }
    }

    /// The items, if it is a list.
    pub fn list(&self) -> Option<&[Reply]> {
        if let Reply::List(items) = self { Some(items) } else { None }
    }

    /// What stands behind `name` in a list of names and values.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let pair = self.list()?.chunks_exact(2).find(|pair| pair[0].text() == Some(name))?;
        pair[1].text()
    }
}

pub(crate) fn write_command(to: &mut impl Write, words: &[&str]) -> io::Result<()> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    to.write_all(bytes.as_bytes())
}

/// A command as a server sees it. None at the end of the connection.
pub(crate) fn read_command(from: &mut impl BufRead) -> io::Result<Option<Vec<String>>> {
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let Reply::List(items) = read_reply(from)? else {
        return Err(garbled("a command that is not a list"));
    };
    let words = items.into_iter().map(|item| match item {
        Reply::Text(word) => Ok(word),
        other => Err(garbled(&format!("a command with {other:?} in it"))),
    });
    words.collect::<io::Result<_>>().map(Some)
}

pub(crate) fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.take(64 << 10).read_line(&mut line)?;
    let Some(line) = line.strip_suffix("\r\n") else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| garbled("an empty line"))?;
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Int(number(rest)?)),
        "$" | "*" if rest == "-1" => Ok(Reply::Nil),
        "$" => {
            let mut bytes = vec![0; length(rest)? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        "*" => {
            (0..length(rest)?).map(|_| read_reply(from)).collect::<io::Result<_>>().map(Reply::List)
        }
        _ => Err(garbled(line)),
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| garbled(text))
}

fn length(text: &str) -> io::Result<usize> {
    match number(text)? {
        n @ 0..=BYTES_MAX => Ok(n as usize),
        _ => Err(garbled(text)),
    }
}

fn garbled(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not RESP2: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(bytes: &str, want: Reply) {
        assert_eq!(read_reply(&mut bytes.as_bytes()).unwrap(), want);
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        reads("+OK\r\n", Reply::Text("OK".into()));
        reads("-ERR no\r\n", Reply::Error("ERR no".into()));
        reads(":-12\r\n", Reply::Int(-12));
        reads("$-1\r\n", Reply::Nil);
        reads("*-1\r\n", Reply::Nil);
        reads("$4\r\na\r\nb\r\n", Reply::Text("a\r\nb".into()));
        reads("*2\r\n:1\r\n*1\r\n$0\r\n\r\n", {
            Reply::List(vec![Reply::Int(1), Reply::List(vec![Reply::Text(String::new())])])
        });
    }

    #[test]
    fn a_reply_cut_short_or_garbled_is_an_error() {
        for bytes in
            ["", "+OK", "+OK\n", "$4\r\nab", "*2\r\n:1\r\n", "$-2\r\n", ":x\r\n", "?\r\n", "\r\n"]
        {
            assert!(read_reply(&mut bytes.as_bytes()).is_err(), "{bytes:?} was read");
        }
    }

    #[test]
    fn a_command_written_is_the_command_read() {
        let mut wire = Vec::new();
        write_command(&mut wire, &["SET", "clé", ""]).unwrap();
        let mut from = wire.as_slice();
        assert_eq!(read_command(&mut from).unwrap().unwrap(), ["SET", "clé", ""]);
        assert_eq!(read_command(&mut from).unwrap(), None);
    }
}
