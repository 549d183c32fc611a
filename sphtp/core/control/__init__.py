"""SphTP, the control plane: ids, heartbeats, announcements, and one view of servers for all.

A client registers one odd id with every server of the cluster's view; servers introduce clients to
each other. The simulation's data never passes through here.
"""
