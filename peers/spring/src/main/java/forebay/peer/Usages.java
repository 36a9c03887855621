package forebay.peer;

import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.springframework.http.HttpStatus;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/** The usages routes: one INSERT for each. */
@RestController
@RequestMapping("/api/usages")
public class Usages {
    private static final String INSERT =
        "INSERT INTO usages (patient_id, \"timestamp\", medication) VALUES (?, ?, ?) RETURNING id";
    private static final String BY_ID =
        "SELECT id, patient_id, \"timestamp\", medication, created_at FROM usages WHERE id = ?";
    /** As browsers print a time, before the zone's name in parentheses. */
    private static final DateTimeFormatter BROWSER =
        DateTimeFormatter.ofPattern("EEE MMM dd uuuu HH:mm:ss 'GMT'xx", Locale.ENGLISH);

    private final JdbcTemplate database;

    /** What is posted. Jackson takes a numeric string for the number. */
    public record Posted(Long patientId, String timestamp, String medication) {}

    /** A usage as it is answered. */
    public record Usage(long id, long patientId, Instant timestamp, String medication, Instant createdAt) {}

    public Usages(JdbcTemplate database) {
        this.database = database;
    }

    private static ResponseStatusException wrong(String detail) {
        return new ResponseStatusException(HttpStatus.BAD_REQUEST, detail);
    }

    private static OffsetDateTime time(String text) {
        if (text == null) {
            throw wrong("timestamp is missing");
        }
        try {
            return OffsetDateTime.parse(text).withOffsetSameInstant(ZoneOffset.UTC);
        } catch (DateTimeParseException notRfc3339) {
            try {
                return OffsetDateTime.parse(text.split(" \\(", 2)[0], BROWSER);
            } catch (DateTimeParseException notOfABrowser) {
                throw wrong("timestamp must be a time");
            }
        }
    }

    private static Usage usage(ResultSet row, int number) throws SQLException {
        Instant at = row.getObject("timestamp", OffsetDateTime.class).toInstant();
        Instant createdAt = row.getObject("created_at", OffsetDateTime.class).toInstant();
        return new Usage(row.getLong("id"), row.getLong("patient_id"), at, row.getString("medication"), createdAt);
    }

    @PostMapping
    @ResponseStatus(HttpStatus.CREATED)
    public Map<String, Object> post(@RequestBody Posted usage) {
        if (usage.patientId() == null || usage.medication() == null) {
            throw wrong("patientId and medication are needed");
        }
        OffsetDateTime at = time(usage.timestamp());
        Long id = database.queryForObject(INSERT, Long.class, usage.patientId(), at, usage.medication());
        return Map.of("id", id);
    }

    @GetMapping("/{id}")
    public Usage byId(@PathVariable long id) {
        List<Usage> found = database.query(BY_ID, Usages::usage, id);
        if (found.isEmpty()) {
            throw new ResponseStatusException(HttpStatus.NOT_FOUND, "there is no such usage");
        }
        return found.get(0);
    }
}
