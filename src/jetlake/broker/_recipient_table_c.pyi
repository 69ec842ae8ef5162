from jetlake.broker._recipient_table_py import *
