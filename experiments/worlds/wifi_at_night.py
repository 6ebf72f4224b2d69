"""A Wi-Fi that is good at night, when the neighbours sleep. The run begins at midnight."""


def wifi_at_night(env, cluster, *, link: str, by_day: float = 0.2, dawn_s: float = 7 * 3600, dusk_s: float = 23 * 3600):
    """Leave *by_day* of the bandwidth of *link* between *dawn_s* and *dusk_s* of each day."""
    wifi = cluster.link(link)
    full_Bps = wifi.bandwidth_Bps
    while True:
        midnight_s = env.now
        yield env.timeout(dawn_s)
        wifi.bandwidth_Bps = by_day * full_Bps
        yield env.timeout(dusk_s - dawn_s)
        wifi.bandwidth_Bps = full_Bps
        yield env.timeout(midnight_s + 24 * 3600 - env.now)
