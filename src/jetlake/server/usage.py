"""What `jetlake serve --help` prints."""

TEXT = """\
Usage: jetlake serve [options]

Flags take one dash or two, and a value after a space or `=`. They override the configuration file.

Server Options:
    -a, --addr, --net <host>         Bind to host address (default: 0.0.0.0)
    -p, --port <port>                Use port for clients (default: 4222, -1 for a random one)
    -n, --name
        --server_name <server_name>  Server name (default: auto)
    -P, --pid <file>                 File to store PID
    -m, --http_port <port>           Use port for http monitoring (-1 for a random one)
    -ms,--https_port <port>          Use port for https monitoring, with the certificates of TLS
    -c, --config <file>              Configuration file
    -t                               Test configuration and exit
    -sl,--signal <signal>=<pid>      Send a signal to a running server (ldm, stop, quit, term, reopen, reload)
                                     <pid> is a process id or the path of a pid file
        --ports_file_dir <dir>       Creates a ports file in the specified directory (nats-server_<pid>.ports)

Logging Options:
    -l, --log <file>                 File to redirect log output
    -s, --syslog                     Log to syslog
    -r, --remote_syslog <addr>       Log to a syslog server (udp://localhost:514, tcp://…, unix:///path)
    -T, --logtime                    Timestamp log entries (default: true)
        --logtime_utc                Timestamps in UTC instead of local timezone (default: false)
    -D, --debug                      Enable debugging output
    -V, --trace                      Trace the protocol, without payloads
    -DV                              Debug and trace
        --log_size_limit <limit>     Logfile size limit (default: auto)

JetStream Options:
    -js, --jetstream                 Enable JetStream functionality
    -sd, --store_dir <dir>           Set the storage directory

Authorization Options:
        --user <user>                User required for connections
        --pass <password>            Password required for connections
        --auth <token>               Authorization token required for connections

TLS Options:
        --tls                        Enable TLS, do not verify clients (default: false)
        --tlscert <file>             Server certificate file
        --tlskey <file>              Private key for server certificate
        --tlsverify                  Enable TLS, verify client certificates
        --tlscacert <file>           Client certificate CA for verification

Common Options:
    -h, --help                       Show this message
    -v, --version                    Show version

Signals: TERM or INT stop, HUP reloads the configuration, USR1 reopens the log file, USR2 enters lame duck mode.
"""
