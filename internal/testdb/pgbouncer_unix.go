//go:build unix

package testdb

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/jackc/pgx/v5"
)

// poolerScript runs the pgbouncer $2 as script runs a server: until descriptor 3 is at its end. It has nothing to lose,
// and which signals end it at once depends on its version, so it is killed.
const poolerScript = `
"$2" input 3<&- &
server=$!
{ read -r _; [ -d "$1" ] && kill -KILL $server; } <&3 &
wait $server
rm -rf "$1"
`

const poolerPort = 6432

// startPooler starts a pgbouncer that only this user and root can reach, as a server with one database. debian is where it
// may be besides PATH, on which /usr/sbin rarely is.
func startPooler(debian string, to *pgx.ConnConfig, prepared int) (s server, prepares bool, err error) {
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin, err = exec.LookPath(debian); err != nil {
			return server{}, false, errNoPooler
		}
	}
	version, err := exec.Command(bin, "--version").Output()
	if err != nil {
		return server{}, false, fmt.Errorf("testdb: start pgbouncer: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(version), "PgBouncer %d.%d", &major, &minor); err != nil {
		return server{}, false, fmt.Errorf("testdb: start pgbouncer: version %q: %w", version, err)
	}
	settings := poolerSettings(to)
	if major > 1 || minor >= 21 {
		settings += fmt.Sprintf("max_prepared_statements = %d\n", prepared)
		prepares = prepared > 0
	}
	c, err := launch(poolerScript, settings, bin)
	if err != nil {
		return server{}, false, fmt.Errorf("testdb: start pgbouncer: %w", err)
	}
	s = server{withDatabase(c.dsn(poolerPort), to.Database), c}
	if err := c.answers(s); err != nil {
		return server{}, false, fmt.Errorf("testdb: start pgbouncer: %w", err)
	}
	return s, prepares, nil
}

func poolerSettings(to *pgx.ConnConfig) string {
	given := func(name, value string) string {
		if value == "" { // it takes no empty one
			return ""
		}
		return name + "='" + strings.ReplaceAll(value, "'", "''") + "'"
	}
	return fmt.Sprintf(`[databases]
* = port=%d %s %s %s
[pgbouncer]
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
auth_type = any
server_login_retry = 0.1
unix_socket_dir = .
listen_port = %d
server_tls_sslmode = prefer
`, to.Port, given("host", to.Host), given("user", to.User), given("password", to.Password), poolerPort)
}
