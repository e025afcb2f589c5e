def test_a_module_without_weights_yet_is_refused():
    with pytest.raises(InputError, match="lazy"):
        network_key(nn.Sequential(nn.Flatten(), nn.LazyLinear(4)))
