"""Tools that only our launcher uses: ssh, threads, addresses, a cache. Entered through its modules; holds nothing
itself."""
