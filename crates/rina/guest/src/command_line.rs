//! Parameters for the guest on the kernel's command line.

/// The words of the kernel's command line:
///
/// ```text
/// carina.name=NAME        host name
/// carina.modules=a,b,c    kernel modules to load, with their dependencies
/// carina.node=1           run `carina node --config /etc/carina.toml`; restart it when it ends
/// carina.cmd=COMMAND      run a command; spaces and similar characters are written as %20
/// carina.off=1            power off when the command has ended
/// MODULE.PARAMETER=VALUE  parameter of a kernel module in carina.modules
/// ```
pub(crate) struct CommandLine {
    text: String,
}

impl CommandLine {
    pub(crate) fn new(text: String) -> CommandLine {
        CommandLine { text }
    }

    /// The value of `carina.KEY`. If the key occurs several times, the last value counts.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let words = self.text.split_whitespace();
        let mut values = words.filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            (name.strip_prefix("carina.")? == key).then_some(value)
        });
        values.next_back()
    }

    /// Whether the value of `carina.KEY` is 1.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.value(key) == Some("1")
    }

    /// Names of the kernel modules to load.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        let names = self.value("modules").unwrap_or_default().split(',');
        names.filter(|name| !name.is_empty())
    }

    /// The parameters of a module, as a text for the kernel.
    pub(crate) fn parameters(&self, module: &str) -> String {
        let words = self.text.split_whitespace();
        let own = words.filter_map(|word| {
            let rest = word.strip_prefix(module)?.strip_prefix('.')?;
            rest.contains('=').then_some(rest)
        });
        own.collect::<Vec<&str>>().join(" ")
    }

    /// The command to run, with %-escapes decoded.
    pub(crate) fn command(&self) -> Option<String> {
        let escaped = self.value("cmd").filter(|command| !command.is_empty())?;
        let mut bytes = Vec::with_capacity(escaped.len());
        let mut rest = escaped.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            let digits = tail.get(..2).filter(|_| byte == b'%');
            let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            let escape = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(escape.unwrap_or(byte));
            rest = if escape.is_some() { &tail[2..] } else { tail };
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        CommandLine::new(text.to_owned())
    }

    #[test]
    fn words_are_found_by_their_names() {
        let line = line(
            "console=ttyS0 quiet carina.name=r1 carina.modules=a,b x_y.debug=1 x.n=2 x_y.k=v,w \
             carina.node=1 carina.off=0\n",
        );
        assert_eq!(line.value("name"), Some("r1"));
        assert_eq!(line.modules().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(line.parameters("x_y"), "debug=1 k=v,w");
        assert_eq!(line.parameters("x"), "n=2");
        assert!(line.is_set("node") && !line.is_set("off"));
        assert_eq!(line.command(), None);
    }

    #[test]
    fn command_comes_without_its_escapes() {
        let command = |text: &str| line(&format!("carina.cmd={text} x")).command();
        assert_eq!(
            command("echo%20100%25%0als").as_deref(),
            Some("echo 100%\nls")
        );
        assert_eq!(command("a%2").as_deref(), Some("a%2"));
        assert_eq!(command(""), None);
        assert_eq!(line("quiet").modules().count(), 0);
    }
}
