//! The load that a fleet must carry.

/// The mean month of the Gregorian calendar.
pub(crate) const SECONDS_A_MONTH: f64 = 365.2425 * 86_400.0 / 12.0;
/// Seconds of a day: retention is given in days.
const SECONDS_A_DAY: f64 = 86_400.0;

/// The load, the cost of a request, and how much stays idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Requests a second now.
    pub rate_per_s: f64,
    /// Growth of the rate a month: 0.05 is 5 %.
    pub growth_a_month: f64,
    /// The months that the plan must last.
    pub months: u32,
    /// Bytes of an answer, head included.
    pub answer_bytes: f64,
    /// Microseconds of one core that a request takes.
    pub cpu_us: f64,
    /// The part of a machine that may be busy: 0.7.
    pub utilisation: f64,
    /// The part of all requests that adds a row.
    pub write_share: f64,
    /// Bytes of memory that a row takes, indexes included, as `/tables` of a running server shows.
    pub row_bytes: f64,
    /// How long a row stays in memory.
    pub retention_days: f64,
    /// Copies of a row: 1, and one for each replica.
    pub copies: u32,
    /// Spare machines: this many may fail.
    pub spare: u32,
    /// The stores behind the servers, which must keep up.
    pub behind: Behind,
    /// The power of the processors.
    pub power: Power,
}

/// The stores behind the servers, as far as their figures were given.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Behind {
    /// Microseconds of the memory tier (Redis or Valkey) that a request takes.
    pub tier_cpu_us: Option<f64>,
    /// Rows a second that the database takes.
    pub database_rows_per_s: Option<f64>,
    /// Bytes of the database's disk that a row takes, indexes included.
    pub disk_row_bytes: Option<f64>,
}

/// How much energy a request takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Power {
    /// By the processors' own counters: joules for 1,000,000 requests.
    Counted(f64),
    /// By a model: watts of a busy core, and nothing for an idle one.
    Model(f64),
}

impl Demand {
    /// Requests a second at the end of the plan.
    pub fn peak_per_s(&self) -> f64 {
        self.rate_per_s * (1.0 + self.growth_a_month).powi(i32::try_from(self.months).unwrap_or(i32::MAX))
    }

    /// Bits a second of all answers.
    pub fn network_bits_per_s(&self) -> f64 {
        self.peak_per_s() * self.answer_bytes * 8.0
    }

    /// Cores, the idle part not counted.
    pub fn busy_cores(&self) -> f64 {
        self.peak_per_s() * self.cpu_us / 1e6
    }

    /// Joules for 1,000,000 requests.
    pub fn joules_a_million(&self) -> f64 {
        match self.power {
            Power::Counted(joules) => joules,
            Power::Model(watts) => self.cpu_us * watts,
        }
    }

    /// Rows a second that are added at the end of the plan.
    pub fn rows_per_s(&self) -> f64 {
        self.peak_per_s() * self.write_share
    }

    /// Rows in memory when the first ones reach the end of their retention.
    pub fn rows(&self) -> f64 {
        self.rows_per_s() * self.retention_days * SECONDS_A_DAY
    }

    /// Bytes of these rows, each copy counted.
    pub fn memory_bytes(&self) -> f64 {
        self.rows() * self.row_bytes * f64::from(self.copies)
    }

    /// Millions of requests a month at the end of the plan.
    pub fn millions_a_month(&self) -> f64 {
        self.peak_per_s() * SECONDS_A_MONTH / 1e6
    }

    /// Gigabytes of answers a month.
    pub fn gigabytes_a_month(&self) -> f64 {
        self.peak_per_s() * self.answer_bytes * SECONDS_A_MONTH / 1e9
    }
}
