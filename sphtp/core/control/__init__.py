"""The control plane of SphTP: ids, announcements, heartbeats, and the view of servers.

A client registers one odd id with every server of the cluster's view. Servers introduce clients to
each other. They pass on at most 4096 bytes of initial data of each client. All other data of a
simulation travels directly between clients, over channels and streams. Servers and clients may also
send each other commands of the application.

Read in this order. ``vocabulary``, ``codec``, ``client_messages`` and ``server_messages`` are the
format, ``records`` the values in messages, ``settings`` the timers and limits.

The client: ``client_table`` is its state machine, ``client`` runs it. ``directory`` has its servers
and peers, and ``interest`` the groups that it watches.

The server: ``server_table`` is its state machine, with the steps in which a server joins;
``server`` runs it. ``registrations`` decides on ids, expiries and what servers replicate,
``registry`` stores registrations, and ``outbox`` sends answers and changes in batches.

Both: ``machine`` is their base, ``inbound`` the entry for bytes from the bus, ``senders`` checks
who sent a message, and ``server_set`` has the view of the servers.
"""
