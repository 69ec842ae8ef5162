"""Links to other servers: leaf nodes, both roles."""
