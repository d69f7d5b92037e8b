"""What crosses a process boundary: messages, their codec, and where sockets live. Imports msgspec only."""
