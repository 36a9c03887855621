//! What stands above the file: environment variables and the command line.

/// Settings from the command line. They win over the environment, which wins over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: for `server.listen`; several separated by commas.
    pub listen: Option<String>,
    /// `--record`: for `record.url`.
    pub record: Option<String>,
    /// `--memory`: for `memory.url`.
    pub memory: Option<String>,
    /// `--data`: the folder of everything embedded: the memory tier's, and that of a SQLite file with a relative path.
    pub data: Option<String>,
    /// `--set key.path=value`, in order.
    pub set: Vec<String>,
}
