"""Make the CURVE keys of a run."""

from pathlib import Path

import zmq

from ddltop.wire.keyfile import Keys, read_keys, write_keys


def ensure_keys(path: Path) -> Path:
    """Write new keys to `path` unless a valid key file is there; give the path. Raises UsageError."""
    server_public, server_secret = zmq.curve_keypair()
    client_public, client_secret = zmq.curve_keypair()
    try:
        write_keys(
            path,
            Keys(
                server_public=server_public.decode(),
                server_secret=server_secret.decode(),
                client_public=client_public.decode(),
                client_secret=client_secret.decode(),
            ),
        )
    except FileExistsError:
        read_keys(path)
    return path
