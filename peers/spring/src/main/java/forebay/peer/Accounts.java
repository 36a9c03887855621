package forebay.peer;

import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import org.springframework.http.HttpStatus;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/** The statements of examples/accounts.toml. */
@RestController
@RequestMapping("/accounts")
public class Accounts {
    private static final String BY_ID = "SELECT id, name, email, created_at, version FROM account WHERE id = ?";
    private static final String COUNT = "SELECT count(*) FROM account WHERE name = ?";
    private static final String INSERT = "INSERT INTO account (id, name, email, version) VALUES (?, ?, ?, ?)";
    /** The first at or above a random id, but never the two that always exist. */
    private static final String DELETE = """
        DELETE FROM account WHERE id = coalesce(
          (SELECT id FROM account WHERE id >= ?
             AND id NOT IN ('06f40771-6460-479a-a47c-177473e240b5', '4db7506f-43fe-475e-afbe-842514a6223b')
             ORDER BY id LIMIT 1),
          (SELECT id FROM account
             WHERE id NOT IN ('06f40771-6460-479a-a47c-177473e240b5', '4db7506f-43fe-475e-afbe-842514a6223b')
             ORDER BY id LIMIT 1))""";
    private static final UUID FIRST = UUID.fromString("06f40771-6460-479a-a47c-177473e240b5");
    private static final Account IN_MEMORY =
        new Account(FIRST, "name-1", "email-" + FIRST + "@email.com", Instant.parse("2024-01-01T00:00:00Z"), 1);

    private final JdbcTemplate database;

    /** An account as it is answered. */
    public record Account(UUID id, String name, String email, Instant createdAt, long version) {}

    public Accounts(JdbcTemplate database) {
        this.database = database;
    }

    private static Account account(ResultSet row, int number) throws SQLException {
        Instant createdAt = row.getObject("created_at", OffsetDateTime.class).toInstant();
        UUID id = row.getObject("id", UUID.class);
        return new Account(id, row.getString("name"), row.getString("email"), createdAt, row.getLong("version"));
    }

    @GetMapping("/in-memory")
    public Account inMemory() {
        return IN_MEMORY;
    }

    @GetMapping("/count")
    public Map<String, Object> count(@RequestParam String name) {
        return Map.of("name", name, "count", database.queryForObject(COUNT, Long.class, name));
    }

    @GetMapping("/{id}")
    public Account byId(@PathVariable UUID id) {
        List<Account> found = database.query(BY_ID, Accounts::account, id);
        if (found.isEmpty()) {
            throw new ResponseStatusException(HttpStatus.NOT_FOUND, "there is no such account");
        }
        return found.get(0);
    }

    @PostMapping("/execute-random-write")
    public Map<String, Object> executeRandomWrite() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        UUID id = UUID.randomUUID();
        if (random.nextBoolean()) {
            String name = "name-" + random.nextInt(1000);
            database.update(INSERT, id, name, "email-" + id + "@email.com", random.nextLong(10_000));
        } else {
            database.update(DELETE, id);
        }
        return Map.of();
    }
}
