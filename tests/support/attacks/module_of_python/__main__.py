sys = cline_in_traceback = None
