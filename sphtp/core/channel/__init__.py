"""Two peers: reliable-ordered messages inside unreliable packets (Fiedler).

Read in this order: ``header`` and ``frames`` say what travels. ``sent_packets`` remembers every
packet until it is acked, ``received_packets`` says which ones arrived. ``send_queue`` with
``send_lane`` and ``queued_messages`` holds what is sent, ``receive_queue`` with
``receive_lane`` and ``reassembly`` what came; ``flow_control`` bounds both, ``receipts`` tells
what became of it. ``loss_detection`` finds what is lost, ``path`` says how much may leave.
``send_side`` and ``receive_side`` put all this together. ``lifecycle`` is the table of states,
``connection`` its runner, ``endpoint`` finds the connection that a datagram belongs to.
"""
