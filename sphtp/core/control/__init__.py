"""The control plane of SphTP: ids, announcements, heartbeats, and the view of servers.

A client registers one odd id with every server of the cluster's view. Servers introduce clients to
each other. They pass on at most 4096 bytes of initial data of each client. All other data of a
simulation travels directly between clients, over channels and streams.
"""
